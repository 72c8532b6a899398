"""An explanation of a failing op-log: the ops, their order and the values that its failure needs.

Each statement comes from neighbours of the log: logs that differ in one op, in the places of two ops, or in one value.
A neighbour is replayed, and still fails if it has the fingerprint of the log.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, groupby
from math import comb
from operator import attrgetter
from time import process_time
from typing import Any, NamedTuple

import msgspec

from swarden.harness.core.errors import InvalidConfig, RunTooLarge
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Op
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import decode_all
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.report.event_text import op_text
from swarden.harness.search.shrink.shrink import BudgetSpent, ShrinkBudget
from swarden.harness.search.shrink.simpler import HANDLES, changed

REACH = 64  # the distance from a value within which others are tried
Fails = Callable[[OpLog], object]  # a failure, or None
WithValue = Callable[[Any], OpLog | None]  # the log with another value; None if no engine can have that value


class ValuePlace(NamedTuple):
    """A value of a log: of op number `op`, from 1, or of the configuration of `engine` if `op` is 0."""

    op: int
    engine: int
    name: str


class Range(NamedTuple):
    """A number: the log fails with all values that were tried from `low` to `high`.

    An end is strict if the log passes with the next value; else no value beyond the end was tried.
    """

    place: ValuePlace
    value: int
    low: int
    high: int
    low_is_strict: bool
    high_is_strict: bool


class Alternative(NamedTuple):
    """Another value in the place of the log's value, and whether the log still fails with it."""

    place: ValuePlace
    value: Any
    other: Any
    still_fails: bool


@dataclass
class Explanation:
    """What a failure needs.  Ops are numbered from 1.

    The log still fails without any one of the `needless` ops.  `ordered` are the pairs of ops that must keep their
    order, without pairs that follow from two others; the order of `free` pairs does not matter.  `complete` is false if
    the budget ended the search.
    """

    needless: list[int] = field(default_factory=list)
    ordered: list[tuple[int, int]] = field(default_factory=list)
    free: list[tuple[int, int]] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    replays: int = 0
    complete: bool = True


def explain(log: OpLog, fails: Fails, budget: ShrinkBudget) -> Explanation:
    """Explain why a log fails; `fails` replays a neighbour."""
    search = _Search(log, fails, budget)
    try:
        search.find_needless()
        search.find_order()
        search.find_values()
    except BudgetSpent:
        search.explanation.complete = False
    search.explanation.replays = len(search.results)
    return search.explanation


@dataclass
class _Search:
    """The search for statements; `results` has for each neighbour that was replayed whether it fails."""

    log: OpLog
    fails: Fails
    budget: ShrinkBudget
    explanation: Explanation = field(default_factory=Explanation)
    results: dict[bytes, bool] = field(default_factory=dict)
    _began: float = field(default_factory=process_time)

    def still_fails(self, neighbour: OpLog | None) -> bool:
        """Replay a neighbour, once; raises BudgetSpent."""
        if neighbour is None:
            return False
        key = neighbour.to_bytes()
        if key not in self.results:
            if len(self.results) >= self.budget.executions or process_time() - self._began >= self.budget.cpu_seconds:
                raise BudgetSpent
            try:
                self.results[key] = self.fails(neighbour) is not None
            except (RunTooLarge, TargetFault):
                self.results[key] = False
        return self.results[key]

    def with_ops(self, ops: Sequence[Op]) -> OpLog:
        return OpLog(self.log.header, list(ops))

    def find_needless(self) -> None:
        ops = self.log.ops
        for index in range(len(ops)):
            if self.still_fails(self.with_ops([*ops[:index], *ops[index + 1 :]])):
                self.explanation.needless.append(index + 1)

    def find_order(self) -> None:
        """Try to exchange each two ops, near pairs first; pairs whose order follows from other pairs are left out."""
        ordered, free = self.explanation.ordered, self.explanation.free
        pairs = sorted(combinations(range(1, len(self.log.ops) + 1), 2), key=lambda pair: pair[1] - pair[0])
        for first, second in pairs:
            if any((first, op) in ordered and (op, second) in ordered for op in range(first + 1, second)):
                continue
            can_change = any(map(self.still_fails, map(self.with_ops, _in_other_order(self.log.ops, first, second))))
            (free if can_change else ordered).append((first, second))

    def find_values(self) -> None:
        for place, value, limits, with_value in self._values():
            if type(value) is int:
                low, low_is_strict = self._end(value, -1, limits[0], with_value)
                high, high_is_strict = self._end(value, 1, limits[1], with_value)
                self.explanation.ranges.append(Range(place, value, low, high, low_is_strict, high_is_strict))
            for other in _others(value, limits):
                fails = self.still_fails(with_value(other))
                self.explanation.alternatives.append(Alternative(place, value, other, fails))

    def _end(self, value: int, direction: int, limit: int | None, with_value: WithValue) -> tuple[int, bool]:
        """The last value in a direction with which the log still fails: search by doubled, then by halved distances."""
        inside, distance = value, 1
        while distance <= REACH and inside != limit:
            tried = value + direction * distance
            if limit is not None and (tried - limit) * direction > 0:
                tried = limit
            if not self.still_fails(with_value(tried)):
                break
            inside, distance = tried, distance * 2
        else:
            return inside, False
        outside = tried
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            if self.still_fails(with_value(middle)):
                inside = middle
            else:
                outside = middle
        return inside, True

    def _values(self) -> Iterator[tuple[ValuePlace, Any, tuple[int | None, int | None], WithValue]]:
        """The arguments of the ops, then the settings that differ from the default."""
        for index, op in enumerate(self.log.ops):
            for names, value, limits in _arguments(op):
                place = ValuePlace(index + 1, op.engine, names[-1])
                yield place, value, limits, partial(self._with_argument, index, names)
        for engine, config in enumerate(self.log.header.configs):
            for name, value in config.items():
                if value != target_for(self.log.header).defaults.get(name):
                    place = ValuePlace(0, engine, name)
                    yield place, value, (0, None), partial(self._with_setting, engine, name)

    def _with_argument(self, index: int, names: Sequence[str], new: Any) -> OpLog:
        ops = self.log.ops
        return self.with_ops([*ops[:index], _replaced(ops[index], names, new), *ops[index + 1 :]])

    def _with_setting(self, engine: int, name: str, new: Any) -> OpLog | None:
        """The log with another value of a setting; None if the configuration is not valid then."""
        header = self.log.header
        configs = [{**config, name: new} if index == engine else config for index, config in enumerate(header.configs)]
        try:
            with blamed_on(target_for(header).name, "decode"):
                decode_all(target_for(header), configs)
        except (InvalidConfig, TargetFault):
            return None
        return self.log.with_header(configs=configs)


def _in_other_order(ops: Sequence[Op], first: int, second: int) -> Iterator[list[Op]]:
    """The ops with the second just before the first, and with the first just after the second.

    If both ops create a handle, such as a request, there are also variants that exchange the ordinals in later ops.
    """
    early, late = ops[first - 1], ops[second - 1]
    before, between, after = list(ops[: first - 1]), list(ops[first : second - 1]), list(ops[second:])
    orders = [([late, early, *between], after), ([*between, late, early], after)]
    names = HANDLES.get(type(early), ())
    if names and type(early) is type(late):
        ordinals = [sum(type(op) is type(early) for op in ops[:end]) for end in (first - 1, second - 1)]
        exchanged = dict(zip(ordinals, reversed(ordinals), strict=True))
        renamed = [changed(op, lambda name, old: exchanged.get(old, old) if name in names else old) for op in after]
        orders += [(order, renamed) for order, _ in orders if renamed != after]
    for order, rest in orders:
        yield [*before, *order, *rest]


def _arguments(value: msgspec.Struct, above: Sequence[str] = ()) -> Iterator[tuple[list[str], Any, Any]]:
    """Each argument of an op and field of its recipe: its names, its value, and the limits of a number."""
    fields = {field.name: field.type for field in msgspec.inspect.type_info(type(value)).fields}  # type: ignore[attr-defined]  # of a struct
    for name in value.__struct_fields__:
        own = getattr(value, name)
        if isinstance(own, msgspec.Struct):
            yield from _arguments(own, [*above, name])
        elif name != "engine":
            yield [*above, name], own, _limits(fields[name])


def _limits(kind: msgspec.inspect.Type) -> tuple[int | None, int | None]:
    """The least and the greatest value that a number may have."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    numbers = [number for number in kinds if isinstance(number, msgspec.inspect.IntType)]
    return (numbers[0].ge, numbers[0].le) if numbers else (None, None)


def _others(value: Any, limits: tuple[int | None, int | None]) -> Iterator[Any]:
    """Other values of an argument that is not a number: the other flag, a number for None, another choice in a path."""
    if isinstance(value, bool):
        yield not value
    elif value is None and limits != (None, None):
        yield limits[0]
    elif isinstance(value, tuple):
        fresh = max(value, default=0) + 1
        yield from ((*value[:index], fresh, *value[index + 1 :]) for index in range(len(value)))
        yield (*value, fresh)


def _replaced(value: msgspec.Struct, names: Sequence[str], new: Any) -> Any:
    """An op with another value of an argument, which may be a field of its recipe."""
    name, *below = names
    return msgspec.structs.replace(value, **{name: _replaced(getattr(value, name), below, new) if below else new})


def explanation_lines(explanation: Explanation, ops: Sequence[Op]) -> Iterator[str]:
    """The statements about the ops, about their order, and about the values; all values of an op are in one line."""
    end = "" if explanation.complete else "; the budget was used up, so later statements are missing"
    yield f"the failure needs, by {explanation.replays} replays of logs that differ in one thing{end}:"
    yield from _op_lines(explanation, ops)
    texts: dict[ValuePlace, str] = {tried.place: _range_text(tried) for tried in explanation.ranges}
    for place, others in groupby(explanation.alternatives, key=attrgetter("place")):
        texts[place] = _alternatives_text(list(others))
    of_op = attrgetter("op", "engine")
    for (op, engine), places in groupby(sorted(texts, key=of_op), key=of_op):
        named = list(places)
        yield f"  of op {op} ({op_text(ops[op - 1])})" if op else f"  of the configuration of engine {engine}"
        yield from (f"    {place.name} {texts[place]}" for place in named if texts[place])
        if irrelevant := [place.name for place in named if not texts[place]]:
            yield f"    any {', '.join(irrelevant)}"


def _op_lines(explanation: Explanation, ops: Sequence[Op]) -> Iterator[str]:
    if explanation.needless:
        yield f"  not each op: it fails without any one of {', '.join(map(str, explanation.needless))}"
    elif explanation.ordered or explanation.free or explanation.complete:
        yield f"  each of the {len(ops)} ops" if len(ops) > 1 else "  the op"
    for first, second in sorted(explanation.ordered):
        yield f"  op {first} before op {second}"
    if len(explanation.free) == comb(len(ops), 2) > 1:
        yield "  any two of them in either order"
        return
    for first, pairs in groupby(sorted(explanation.free), key=lambda pair: pair[0]):
        yield f"  op {first} before or after op {', '.join(str(second) for _, second in pairs)}"


def _range_text(tried: Range) -> str:
    """The values with which the log still fails; "" if it fails with every value that was tried."""
    if not tried.low_is_strict and not tried.high_is_strict:
        return ""
    if tried.low == tried.high:
        beyond = {tried.low - 1: tried.low_is_strict, tried.high + 1: tried.high_is_strict}
        return f"{tried.value}, not {' or '.join(str(value) for value, passes in beyond.items() if passes)}"
    if tried.low_is_strict and tried.high_is_strict:
        return f"{tried.low} to {tried.high}"
    if tried.low_is_strict:
        return f"at least {tried.low} (tried up to {tried.high})"
    return f"at most {tried.high} (tried down to {tried.low})"


def _alternatives_text(alternatives: Sequence[Alternative]) -> str:
    """The values with which the log fails, and those with which it passes; "" if it fails with each that was tried."""
    bad = [_value(alternative.other) for alternative in alternatives if not alternative.still_fails]
    good = [_value(alternative.other) for alternative in alternatives if alternative.still_fails]
    if not bad:
        return ""
    also = f", but also {' or '.join(good)}" if good else ""
    return f"{_value(alternatives[0].value)}, not {' or '.join(bad)}{also}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ".".join(map(str, value)) or "empty"
    return "none" if value is None else str(value).lower()
