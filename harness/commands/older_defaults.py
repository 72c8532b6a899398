"""The defaults that a release has changed: a log that passes there may fail as before with the older ones."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from swarden.harness.core.target import Target
from swarden.harness.kit.definitions import Definitions
from swarden.harness.kit.released import ReleasedTarget


@dataclass(frozen=True)
class OlderDefaults:
    """By part, the fields that have another default in a release than in an older one, with the older default.

    A call is the block in which objects of the parts have these values for the fields that their maker leaves out.
    """

    by_part: Mapping[str, Mapping[str, object]]

    def __str__(self) -> str:
        return ", ".join(
            f"{part}.{name} {value!r}" for part, own in self.by_part.items() for name, value in own.items()
        )

    @contextmanager
    def __call__(self, target: Target) -> Iterator[None]:
        assert isinstance(target, ReleasedTarget), f"{target.name}: only a ReleasedTarget has parts"
        with ExitStack() as planted:
            for part, fields in self.by_part.items():
                planted.enter_context(_planted(target.booted().part(part), fields))
            yield


def older_defaults(old: Target, new: Target) -> OlderDefaults | None:
    """The changed defaults of a release, of those that are literals in both; None if there are none."""
    if not isinstance(old, ReleasedTarget) or not isinstance(new, ReleasedTarget):
        return None
    before, after = old.definitions(), new.definitions()
    found = {}
    for part, places in new.adapter.parts.items():
        was, now = (_defaults_of(one, places) for one in (before, after))
        if changed := {name: was[name] for name in sorted(was.keys() & now.keys()) if was[name] != now[name]}:
            found[part] = changed
    return OlderDefaults(found) if found else None


def _defaults_of(release: Definitions, places: Sequence[str]) -> Mapping[str, object]:
    place = next(filter(release.has, places), "")
    return release.defaults.get(place.rpartition(":")[2], {})


@contextmanager
def _planted(kind: Any, fields: Mapping[str, object]) -> Iterator[None]:
    original, signature, is_own = kind.__init__, inspect.signature(kind), "__init__" in vars(kind)
    older = {name: value for name, value in fields.items() if name in signature.parameters}

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind_partial(*args, **kwargs).arguments
        original(self, *args, **{name: value for name, value in older.items() if name not in given}, **kwargs)

    kind.__init__ = init
    try:
        yield
    finally:
        if is_own:
            kind.__init__ = original
        else:
            del kind.__init__
