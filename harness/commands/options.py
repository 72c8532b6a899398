"""Options that several commands have, also several as one object."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from operator import getitem
from typing import Annotated, Any, get_args, get_type_hints

import typer

EngineOption = Annotated[str, typer.Option(help="the engine, as NAME or NAME==VERSION; see 'swarden engines'")]


def with_single_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: each object of options is made from single ones.

    Such a parameter is `Annotated[Options, options]`: a dataclass, and an option for each of its fields that is named.
    """
    parameters, objects = list[Parameter](), dict[str, tuple[Any, list[str]]]()
    for own in signature(command, eval_str=True).parameters.values():
        kind, *metadata = get_args(own.annotation) or (own.annotation,)
        if not is_dataclass(kind):
            parameters.append(own)
            continue
        [options], hints = metadata, get_type_hints(kind)
        named = [field for field in fields(kind) if field.name in options]
        objects[own.name] = kind, [field.name for field in named]
        for field in named:
            annotation = getitem(Annotated, (hints[field.name], options[field.name]))
            parameters.append(Parameter(field.name, own.kind, default=field.default, annotation=annotation))
    if not objects:
        return command

    @wraps(command)
    def call(*arguments: Any, **values: Any) -> None:
        for name, (kind, names) in objects.items():
            values[name] = kind(**{one: values.pop(one) for one in names})
        command(*arguments, **values)

    call.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]  # of `inspect`
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call
