"""A property of a frozen record that is computed at its first use and then kept."""

from collections.abc import Callable
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT")
ValueT = TypeVar("ValueT")


class Derived(Generic[RecordT, ValueT]):
    """Like `functools.cached_property`, without the lock that Python 3.11 takes at each first use.

    The value is kept in the instance's dictionary, where attribute look-up finds it before this descriptor.
    """

    part = ""  # the field that the value depends on, if it depends on no other

    def __init__(self, find: Callable[[RecordT], ValueT]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    def __get__(self, record: RecordT, kind: type[RecordT]) -> ValueT:
        value = record.__dict__[self._name] = self._find(record)
        return value


def index_of(part: str) -> Callable[[Callable[[RecordT], ValueT]], Derived[RecordT, ValueT]]:
    """A Derived that depends on one field of the record: `inherit` passes its value on with that field."""

    def made(find: Callable[[RecordT], ValueT]) -> Derived[RecordT, ValueT]:
        derived = Derived(find)
        derived.part = part
        return derived

    return made


def indexes_by_part(kind: type) -> dict[str, list[str]]:
    """The names of the indexes of a class, by the field that they depend on."""
    by_part: dict[str, list[str]] = {}
    for name, value in vars(kind).items():
        if isinstance(value, Derived) and value.part:
            by_part.setdefault(value.part, []).append(name)
    return by_part


def inherit(earlier: object, later: object, indexes: dict[str, list[str]]) -> None:
    """Copy the indexes of `earlier` to `later` for the fields that are the same objects in both."""
    computed, own = earlier.__dict__, later.__dict__
    for part, names in indexes.items():
        if computed[part] is own[part]:
            for name in names:
                if name in computed:
                    own[name] = computed[name]
