"""The defaults that a release has changed: a log that passes there may fail as before with the older ones."""

import ast
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from typing import Any
from unittest import mock

from swarden.harness.core.target import Target
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.releases.definitions import Definitions
from swarden.harness.releases.reads import definitions_of

ENVIRONMENT = ("environ", "envs")  # the modules that read the variables of the environment, in SGLang and vLLM


@dataclass(frozen=True)
class OlderDefaults:
    """The defaults that a release has changed, with their values in an older release.

    `by_part` has the fields of the parts, `variables` the environment variables.  A call gives a context with the older
    defaults, for variables that are not set and for fields that the maker of an object leaves out.
    """

    by_part: Mapping[str, Mapping[str, object]]
    variables: Mapping[str, object]

    def __str__(self) -> str:
        fields = [(f"{part}.{name}", value) for part, own in self.by_part.items() for name, value in own.items()]
        return ", ".join(f"{name} {value!r}" for name, value in (*fields, *self.variables.items()))

    @contextmanager
    def __call__(self, target: Target) -> Iterator[None]:
        assert isinstance(target, ReleasedTarget), f"{target.name}: only a ReleasedTarget has parts"
        with ExitStack() as planted:
            for name in self.variables.keys() - os.environ.keys():
                os.environ[name] = str(self.variables[name])
                planted.callback(os.environ.pop, name, None)
            for part, fields in self.by_part.items():
                planted.enter_context(_planted(target.booted().code(part), fields))
            yield


def older_defaults(old: Target, new: Target) -> OlderDefaults | None:
    """The defaults that a release has changed and that are literals in both releases; None if there are none."""
    if not isinstance(old, ReleasedTarget) or not isinstance(new, ReleasedTarget):
        return None
    before, after = definitions_of(old), definitions_of(new)
    by_part = {}
    for part, places in new.load.places.items():
        was, now = (_defaults_of(release, places) for release in (before, after))
        if changed := {name: was[name] for name in sorted(was.keys() & now.keys()) if was[name] != now[name]}:
            by_part[part] = changed
    variables, now = _variables_of(before), _variables_of(after)
    changed = {name: variables[name] for name in sorted(variables.keys() & now.keys()) if variables[name] != now[name]}
    return OlderDefaults(by_part, changed) if by_part or changed else None


def _variables_of(release: Definitions) -> Mapping[str, object]:
    """The variables of the environment that a release reads, with their defaults if these are literals.

    They are assigned, as in `NAME = EnvBool(False)`, or read, as in `os.getenv("NAME", "0")`.
    """
    trees = Definitions(release.folder, release.root, ENVIRONMENT).modules.values()
    defaults: dict[str, object] = {}
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Constant(value)])):
                defaults[name] = value
            case ast.Call(
                func=ast.Attribute(attr="getenv" | "get"), args=[ast.Constant(str(name)), ast.Constant(value)]
            ):
                defaults[name] = value
    return {name: value for name, value in defaults.items() if value is not None and name.isupper()}


def _defaults_of(release: Definitions, places: Sequence[str]) -> Mapping[str, object]:
    place = next(filter(release.has, places), "")
    return release.defaults.get(place.rpartition(":")[2], {})


def _planted(kind: Any, fields: Mapping[str, object]) -> AbstractContextManager[Any]:
    original, signature = kind.__init__, inspect.signature(kind)
    older = {name: value for name, value in fields.items() if name in signature.parameters}

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind_partial(*args, **kwargs).arguments
        original(self, *args, **{name: value for name, value in older.items() if name not in given}, **kwargs)

    return mock.patch.object(kind, "__init__", init)
