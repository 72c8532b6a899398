"""Values of a state that follow those of the state before: what is the same is shared, so a change costs what changed.

A value knows its `former` one until it is followed itself, so that a run keeps no line of former values.  An adapter
may use them in a PoolView, a Holding or a PeerMap; any other sequence serves there, at a cost that follows its length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar, overload

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
MOST_LOOSE = 1024  # units of its own in a list


class Followed(Mapping[KeyT, ValueT]):
    """A mapping without None.  The newest of a line has the values, an earlier one those that its next has changed."""

    __slots__ = ("_later", "_values", "_was")

    def __init__(self, values: dict[KeyT, ValueT]) -> None:
        self._values = values
        self._was: dict[KeyT, ValueT | None] = {}
        self._later: Followed[KeyT, ValueT] | None = None

    def changed(self, changes: Mapping[KeyT, ValueT]) -> "Followed[KeyT, ValueT]":
        """The mapping with these values; if it is not the newest of its line, that costs a copy."""
        if self._later is not None:
            return Followed({**self, **changes})
        values = self._values
        self._was = {key: values.get(key) for key in changes}
        self._later = later = Followed(values)
        values.update(changes)
        return later

    def get(self, key: object, default: Any = None) -> Any:
        one = self
        while one._later is not None:
            if key in one._was:
                value = one._was[key]
                return default if value is None else value
            one = one._later
        return one._values.get(key, default)  # type: ignore[arg-type]  # as of a dict

    def __getitem__(self, key: KeyT) -> ValueT:
        value: ValueT | None = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[KeyT]:
        one, known = self, dict[KeyT, ValueT | None]()
        while one._later is not None:
            known, one = one._was | known, one._later
        return iter([key for key, value in {**one._values, **known}.items() if value is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Following(Sequence[int]):
    """Numbers that follow the `former` ones: without those that have `gone`, with those that `came`."""

    __slots__ = ("came", "former", "gone")

    def __init__(self) -> None:
        self.former: Self | None = None
        self.gone: Sequence[int] = ()
        self.came: Sequence[int] = ()

    def _follow(self, former: Self, gone: Sequence[int], came: Sequence[int]) -> Self:
        self.former, self.gone, self.came, former.former = former, gone, came, None
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Sequence) and [*self] == [*other])

    def __repr__(self) -> str:
        return repr([*self])


class Parts(NamedTuple):
    """A list as units of its own, indices into the units that it shares, and units of its own."""

    head: tuple[int, ...]
    span: range
    tail: tuple[int, ...]

    def between(self, first: int, end: int) -> "Parts":
        spans, start = list[slice](), 0
        for part in self:
            spans.append(slice(max(0, first - start), max(0, end - start)))
            start += len(part)
        return Parts(self.head[spans[0]], self.span[spans[1]], self.tail[spans[2]])


class Units(Following):
    """Units in order, which come and go at both ends, as in a free list."""

    __slots__ = ("_parts", "_shared")

    def __init__(self, units: Iterable[int]) -> None:
        super().__init__()
        self._shared = tuple(units)
        self._parts = Parts((), range(len(self._shared)), ())

    def following(self, first: int, end: int, behind: Sequence[int] = (), before: Sequence[int] = ()) -> "Units":
        """The units with the indices from `first` to `end`, and others before and behind them."""
        head, span, tail = self._parts.between(first, end)
        parts = Parts((*before, *head), span, (*tail, *behind))
        is_loose = len(parts.head) + len(parts.tail) > MOST_LOOSE
        one = Units((*parts.head, *self._shared[span.start : span.stop], *parts.tail) if is_loose else ())
        if not is_loose:
            one._shared, one._parts = self._shared, parts
        return one._follow(self, (*self[:first], *self[end:]), (*before, *behind))

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, int):
            return self[index : index + 1 or None][0]
        first, end, _ = index.indices(len(self))
        head, span, tail = self._parts.between(first, end)
        return (*head, *self._shared[span.start : span.stop], *tail)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class UnitSet(Following):
    """Units in ascending order, of which any can go."""

    __slots__ = ("_is_in", "_len")

    def __init__(self, units: Iterable[int] = ()) -> None:
        super().__init__()
        self._is_in = Followed(dict.fromkeys(units, True))
        self._len = len(self._is_in)

    def following(self, gone: Iterable[int], came: Iterable[int]) -> "UnitSet":
        """The set without the units of it that have gone, and with those that came."""
        one, has = UnitSet(), self._is_in.get
        left = [unit for unit in {*gone}.difference(came) if has(unit)]
        new = [unit for unit in {*came} if not has(unit)]
        one._is_in = self._is_in.changed(dict.fromkeys(left, False) | dict.fromkeys(new, True))
        one._len = self._len + len(new) - len(left)
        return one._follow(self, left, new)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        return [*self][index]

    def __contains__(self, unit: object) -> bool:
        return bool(self._is_in.get(unit))

    def __iter__(self) -> Iterator[int]:
        return iter(sorted([unit for unit, is_in in self._is_in.items() if is_in]))

    def __len__(self) -> int:
        return self._len


class Peers(Following):
    """The peer of each unit, 0 for none; `came` are the units with another peer than in the former one.

    If no two units have the same peer, `unit_of` has the unit of each peer; else it is None.
    """

    __slots__ = ("_len", "_peers", "unit_of")

    def __init__(self, peers: Sequence[int]) -> None:
        super().__init__()
        self._len, self._peers = len(peers), Followed({unit: peer for unit, peer in enumerate(peers) if peer})
        units = {peer: unit for unit, peer in self._peers.items()}
        self.unit_of = Followed(units) if len(units) == len(self._peers) else None

    def following(self, changes: Mapping[int, int]) -> "Peers":
        """The map with these peers of units."""
        one, get = Peers(()), self._peers.get
        was = {unit: get(unit, 0) for unit in changes}
        new = {unit: peer for unit, peer in changes.items() if peer != was[unit]}
        if (unit_of := self.unit_of) is not None:
            left, taken = {was[unit]: 0 for unit in new}, {peer: unit for unit, peer in new.items() if peer}
            is_unique = len(taken) == sum(map(bool, new.values()))
            is_unique = is_unique and not any(left.get(peer, unit_of.get(peer)) for peer in taken)
            unit_of = unit_of.changed(left | taken) if is_unique else None
        one._len, one._peers, one.unit_of = self._len, self._peers.changed(new), unit_of
        return one._follow(self, (), [*new])

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._peers.get(range(self._len)[index], 0) if isinstance(index, int) else [*self][index]

    def __iter__(self) -> Iterator[int]:
        peers = [0] * self._len
        for unit, peer in self._peers.items():
            peers[unit] = peer
        return iter(peers)

    def __len__(self) -> int:
        return self._len
