"""The options in the help of a command: one plain word for each value, no word for a flag, and no bounds."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, signature
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer import Option
from typer.core import TyperArgument, TyperGroup, TyperOption

WORDS = {  # for the value of an option, by the last word of its name
    **dict.fromkeys(("archive", "checkpoint", "corpus", "draft", "oplogs", "resume"), "DIR"),
    **dict.fromkeys(("coverage", "seconds", "timeout"), "SECONDS"),
    **dict.fromkeys(("prompt", "reason"), "TEXT"),
    **dict.fromkeys(("from", "to"), "VERSION"),
    "memory": "GIB",
    "minutes": "MINUTES",
    "ms": "MS",
    "mutant": "ID",
    "part": "PART",
    "scheduler": "ADDRESS",
    "until": "DATE",
}
WORDS_OF_TYPES = {int: "N", float: "N", str: "NAME", Path: "FILE"}
# An option of a group. Help lists those without a group first, then the groups as their first options come.
batch_option = partial(Option, rich_help_panel="Batches")
check_option = partial(Option, rich_help_panel="Checks")
finding_option = partial(Option, rich_help_panel="Findings")
limit_option = partial(Option, rich_help_panel="Limits")
memory_option = partial(Option, rich_help_panel="Memory")
output_option = partial(Option, rich_help_panel="Output")
pair_option = partial(Option, rich_help_panel="Two engines")
sampling_option = partial(Option, rich_help_panel="Sampling")
traffic_option = partial(Option, rich_help_panel="Traffic")
worker_option = partial(Option, rich_help_panel="Workers")
EngineOption = Annotated[str, typer.Option(help="the engine, as NAME or NAME==VERSION; see 'swarden engines'")]


class PlainArgument(TyperArgument):
    """An argument that help names without its type."""

    def display_type_rich(self, ctx: Any) -> None:
        return None


def with_plain_params(params: Sequence[Any]) -> Sequence[Any]:
    """The parameters, changed in place. Their types check the bounds, which help does not show."""
    for param in params:
        if isinstance(param, TyperArgument):
            param.__class__ = PlainArgument  # typer makes the parameters, and takes no class for them
        elif isinstance(param, TyperOption) and param.metavar is None:
            param.metavar = _word(param)
        param.min = param.max = None
    return params


def with_plain_help(command: Any, ctx: Any) -> Any:
    """The command and its subcommands, changed in place: plain parameters, and one line for each paragraph."""
    for entry in (command, *(command.commands.values() if isinstance(command, TyperGroup) else ())):
        with_plain_params(entry.get_params(ctx))
        entry.help = re.sub(r"(?<!\n)\n(?!\n)", " ", entry.help or "")
    return command


def _word(option: TyperOption) -> str:
    """The word for the value of an option; "" for a flag."""
    if option.is_flag:
        return ""
    name = option.opts[0].lstrip("-").rpartition("-")[2]
    kind, choices = option.type_descriptor.annotation, option.type_descriptor.choices
    word = "|".join(choices) if choices else WORDS_OF_TYPES[(*get_args(kind), kind)[0]]
    return WORDS.get(name, word)


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
        for name, (kind, field_names) in objects.items():
            values[name] = kind(**{name: values.pop(name) for name in field_names})
        command(*arguments, **values)

    call.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]  # of `inspect`
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
