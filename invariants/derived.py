"""A property of a frozen record that is computed at its first use and then kept."""

from collections.abc import Callable
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT")
ValueT = TypeVar("ValueT")


class Derived(Generic[RecordT, ValueT]):
    """Like `functools.cached_property`, without the lock that Python 3.11 takes at each first use.

    The value is kept in the instance's dictionary, where attribute look-up finds it before this descriptor.
    """

    def __init__(self, find: Callable[[RecordT], ValueT]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    def __get__(self, record: RecordT, kind: type[RecordT]) -> ValueT:
        value = record.__dict__[self._name] = self._find(record)
        return value
