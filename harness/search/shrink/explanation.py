"""An explanation of an op-log in words."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import comb
from typing import Any

from swarden.harness.core.ops import Op
from swarden.harness.report.op_text import op_text
from swarden.harness.search.shrink.explain import Alternative, Explanation, Range, ValuePlace


def explanation_lines(explanation: Explanation, ops: Sequence[Op]) -> Iterator[str]:
    """The statements about the ops, about their order, and about the values; all values of an op are in one line."""
    end = "" if explanation.complete else "; the budget was used up, so later statements are missing"
    yield f"the failure needs, by {explanation.replays} replays of logs that differ in one thing{end}:"
    yield from _op_lines(explanation, ops)
    texts: dict[ValuePlace, str] = {one.place: _range_text(one) for one in explanation.ranges}
    for place, others in groupby(explanation.alternatives, key=lambda one: one.place):
        texts[place] = _alternatives_text(list(others))
    for (op, engine), places in groupby(sorted(texts, key=lambda one: one[:2]), key=lambda one: one[:2]):
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


def _range_text(one: Range) -> str:
    """The values with which the log still fails; "" if it fails with every value that was tried."""
    if not one.low_is_strict and not one.high_is_strict:
        return ""
    if one.low == one.high:
        beyond = [one.low - 1] * one.low_is_strict + [one.high + 1] * one.high_is_strict
        return f"{one.value}, not {' or '.join(map(str, beyond))}"
    if one.low_is_strict and one.high_is_strict:
        return f"{one.low} to {one.high}"
    if one.low_is_strict:
        return f"at least {one.low} (tried up to {one.high})"
    return f"at most {one.high} (tried down to {one.low})"


def _alternatives_text(alternatives: Sequence[Alternative]) -> str:
    """The values with which the log fails, and those with which it passes; "" if it fails with each that was tried."""
    bad, good = ([_value(one.other) for one in alternatives if one.still_fails == fails] for fails in (False, True))
    if not bad:
        return ""
    also = f", but also {' or '.join(good)}" if good else ""
    return f"{_value(alternatives[0].value)}, not {' or '.join(bad)}{also}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ".".join(map(str, value)) or "empty"
    return "none" if value is None else str(value).lower()
