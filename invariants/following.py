"""Values of a state that follow those of the state before: what is the same is shared, so a change costs what changed.

A value knows its `former` one until it is followed itself, so that a run keeps no line of former values.  An adapter
may use them in a PoolView, a Holding or a PeerMap; any other sequence serves there, at a cost that follows its length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import ne
from typing import Any, Self, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
BLOCK = 256  # units that are compared at once
MOST_LOOSE = 1024  # units in head and tail of a list; with more, they are merged into what it shares


def differing(old: Sequence[int], new: Sequence[int]) -> set[int]:
    """The indices at which two maps differ; equal blocks are skipped with one comparison."""
    if old is new:
        return set()
    if isinstance(new, Following) and new.former is old:
        return {*new.came}
    size, differing = max(len(old), len(new)), set[int]()
    if len(old) != len(new) or isinstance(old, Following) or isinstance(new, Following):
        old, new = [[*peers, *[0] * (size - len(peers))] for peers in (old, new)]
    for first in range(0, size, BLOCK):
        then, now = old[first : first + BLOCK], new[first : first + BLOCK]
        if then != now:
            differing.update(compress(count(first), map(ne, then, now)))
    return differing


class VersionedMap(Mapping[KeyT, ValueT]):
    """A version of a mapping without None; `changed` makes the next one, at the cost of what it changes.

    The newest version has the values, an earlier one the former values of the keys that its successor changed.
    """

    __slots__ = ("_later", "_values", "_was")

    def __init__(self, values: dict[KeyT, ValueT]) -> None:
        self._values: dict[Any, ValueT] = values
        self._was: dict[KeyT, ValueT | None] = {}
        self._later: VersionedMap[KeyT, ValueT] | None = None

    def changed(self, changes: Mapping[KeyT, ValueT]) -> "VersionedMap[KeyT, ValueT]":
        """The mapping with these values; of a version that is not the newest it costs a copy."""
        if self._later is not None:
            return VersionedMap({**self, **changes})
        values = self._values
        self._was = {key: values.get(key) for key in changes}
        self._later = later = VersionedMap(values)
        values.update(changes)
        return later

    def get(self, key: object, default: Any = None) -> Any:
        version = self
        while version._later is not None:
            if key in version._was:
                value = version._was[key]
                return default if value is None else value
            version = version._later
        return version._values.get(key, default)

    def __getitem__(self, key: KeyT) -> ValueT:
        value: ValueT | None = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[KeyT]:
        version, was = self, dict[KeyT, ValueT | None]()
        while version._later is not None:
            was, version = version._was | was, version._later
        return iter([key for key, value in {**version._values, **was}.items() if value is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Following(Sequence[int]):
    """Numbers that follow the `former` ones: without those that have `gone`, with those that `came`.

    Pools with fewer than LEAST units are read and judged whole, because that costs less.
    """

    LEAST = 512
    __slots__ = ("came", "former", "gone")

    def __init__(self) -> None:
        self.former: Self | None = None
        self.gone: Sequence[int] = ()
        self.came: Sequence[int] = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Following) and other.former is self:
            return False
        return self is other or (isinstance(other, Sequence) and len(self) == len(other) and [*self] == [*other])

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def _follow(self, former: Self, gone: Sequence[int], came: Sequence[int]) -> Self:
        self.former, self.gone, self.came, former.former = former, gone, came, None
        return self


class Units(Following):
    """Units in order, which come and go at both ends, as in a free list."""

    __slots__ = ("_end", "_first", "_head", "_len", "_shared", "_tail")

    def __init__(self, units: Iterable[int]) -> None:
        super().__init__()
        self._head: tuple[int, ...] = ()
        self._tail: tuple[int, ...] = ()
        self._shared = tuple(units)
        self._first, self._end, self._len = 0, len(self._shared), len(self._shared)

    def following(self, first: int, end: int, behind: Sequence[int] = (), before: Sequence[int] = ()) -> "Units":
        """The units with the indices from `first` to `end`, and others before and behind; itself if it has these."""
        left = self[end:]
        same = next(compress(count(), map(ne, left, behind)), min(len(left), len(behind)))
        gone, came, end = (*self[:first], *left[same:]), (*before, *behind[same:]), end + same
        if not gone and not came:
            return self
        head, lo, hi, tail = self._cut(first, end)
        head, tail = (*before, *head), (*tail, *behind[same:])
        newer = Units((*head, *self._shared[lo:hi], *tail) if len(head) + len(tail) > MOST_LOOSE else ())
        if not newer._len:
            newer._head, newer._shared, newer._first, newer._end, newer._tail = head, self._shared, lo, hi, tail
            newer._len = len(head) + hi - lo + len(tail)
        return newer._follow(self, gone, came)

    def _cut(self, first: int, end: int) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
        """The slice [first, end) in three parts: of the head, the range of shared units, of the tail."""
        start, border = len(self._head), self._len - len(self._tail)
        lo = min(max(first - start, 0) + self._first, self._end)
        hi = max(lo, min(end - start + self._first, self._end))
        return self._head[first:end], lo, hi, self._tail[max(0, first - border) : max(0, end - border)]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            return self[index : index + 1 or None][0]
        if index.step not in (None, 1):
            return self[:][index]
        head, lo, hi, tail = self._cut(*index.indices(self._len)[:2])
        return (*head, *self._shared[lo:hi], *tail) if head or tail else self._shared[lo:hi]

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __len__(self) -> int:
        return self._len


class UnitSet(Following):
    """Units in ascending order, of which any can go."""

    __slots__ = ("_is_in", "_len", "_sorted")

    def __init__(self, units: Iterable[int] = ()) -> None:
        super().__init__()
        self._is_in = VersionedMap(dict.fromkeys(units, True))
        self._len = len(self._is_in)
        self._sorted: list[int] | None = None

    def following(self, gone: Iterable[int], came: Iterable[int]) -> "UnitSet":
        """The set without the units of it that have gone, and with those that came; itself if it is that."""
        has = self._is_in.get
        left = [unit for unit in {*gone}.difference(came) if has(unit)]
        new = [unit for unit in {*came} if not has(unit)]
        if not left and not new:
            return self
        newer = UnitSet()
        newer._is_in = self._is_in.changed(dict.fromkeys(left, False) | dict.fromkeys(new, True))
        newer._len = self._len + len(new) - len(left)
        return newer._follow(self, left, new)

    def __contains__(self, unit: object) -> bool:
        return bool(self._is_in.get(unit))

    def __iter__(self) -> Iterator[int]:
        if self._sorted is None:
            self._sorted = sorted([unit for unit, is_in in self._is_in.items() if is_in])
        return iter(self._sorted)

    def __len__(self) -> int:
        return self._len


class Peers(Following):
    """The peer of each unit, 0 for none; `came` are the units with another peer than in the former one.

    If no two units have the same peer, `unit_of` has the unit of each peer; else it is None.
    """

    __slots__ = ("_len", "_peers", "unit_of")

    def __init__(self, peers: Sequence[int]) -> None:
        super().__init__()
        self._len, self._peers = len(peers), VersionedMap({unit: peer for unit, peer in enumerate(peers) if peer})
        units = {peer: unit for unit, peer in self._peers.items()}
        self.unit_of = VersionedMap(units) if len(units) == len(self._peers) else None

    def following(self, changes: Mapping[int, int]) -> "Peers":
        """The map with these peers of units, at least one of them another one."""
        newer, get = Peers(()), self._peers.get
        was = {unit: get(unit, 0) for unit in changes}
        new = {unit: peer for unit, peer in changes.items() if peer != was[unit]}
        if (unit_of := self.unit_of) is not None:
            left, taken = {was[unit]: 0 for unit in new}, {peer: unit for unit, peer in new.items() if peer}
            is_unique = len(taken) == sum(map(bool, new.values()))
            is_unique = is_unique and not any(left.get(peer, unit_of.get(peer)) for peer in taken)
            unit_of = unit_of.changed(left | taken) if is_unique else None
        newer._len, newer._peers, newer.unit_of = self._len, self._peers.changed(new), unit_of
        return newer._follow(self, (), [*new])

    def __getitem__(self, index: Any) -> Any:
        return self._peers.get(range(self._len)[index], 0) if isinstance(index, int) else [*self][index]

    def __iter__(self) -> Iterator[int]:
        peers = [0] * self._len
        for unit, peer in self._peers.items():
            peers[unit] = peer
        return iter(peers)

    def __len__(self) -> int:
        return self._len
