"""The wording of violations, and the equation of a pool: its terms, and by how much they differ from its capacity."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from swarden.invariants.conservation import Conservation, conservation_of
from swarden.invariants.events import NODE_LETTER, OWNER_KINDS, Owner
from swarden.invariants.view import PoolView, Snapshot
from swarden.invariants.violation import GROUP, NODE, POOL, Ref, Violation


def conservation_line(pool: PoolView) -> str:
    """The name of a pool and its equation."""
    return f"{pool.name}: {equation_text(conservation_of(pool))}"


def equation_text(terms: Conservation) -> str:
    uncached = sum(terms.uncached.values())
    holders = ", ".join(f"{owner} {count}" for owner, count in terms.uncached.items())
    return (
        f"capacity {terms.capacity} = free {terms.free}"
        f" + cached {terms.evictable + terms.protected} (evictable {terms.evictable}, protected {terms.protected})"
        f" + uncached {uncached}{f' ({holders})' if holders else ''}"
        f"{f' + fenced {terms.fenced}' if terms.fenced else ''}{_excess_text(terms.excess)}"
    )


def _excess_text(excess: int) -> str:
    if not excess:
        return ""
    count = "one" if abs(excess) == 1 else str(abs(excess))
    return f": {count} too {'many' if excess > 0 else 'few'}"


LETTERS = {NODE: NODE_LETTER, **{kind: kind[0] for kind in OWNER_KINDS}}  # before the id of a thing


def counted(number: float, noun: str) -> str:
    """A number with its noun, as in "1 run" or "2.5 minutes"."""
    digits = f"{number:g}" if number % 1 else f"{number:.0f}"
    return f"{digits} {noun}{'' if number == 1 else 's'}"


def listed(things: Sequence[object], most: int = 4) -> str:
    """The first of these things, and how many more there are."""
    text = ", ".join(map(str, things[:most]))
    return f"{text} and {len(things) - most} more" if len(things) > most else text


def subject_text(ref: Ref) -> str:
    """A subject in words, as in "swa page 17", "row 2", "request r3" or "node n7"."""
    if ref.kind == POOL:
        return ref.pool
    if ref.kind == GROUP:
        return f"group {ref.id} of {ref.pool}"
    if ref.pool:
        return f"{ref.kind} {ref.id}" if ref.pool == f"{ref.kind}s" else f"{ref.pool} {ref.kind} {ref.id}"
    return f"{ref.kind} {LETTERS.get(ref.kind, '')}{ref.id}" if ref.id else ref.kind


def evidence_text(violation: Violation) -> str:
    """The sentence of a violation's code with its values."""
    return violation.code.sentence.format_map({name: value_text(value) for name, value in violation.values.items()})


def value_text(value: object) -> str:
    """A value of a violation as text; owners and subjects are joined by "and"."""
    match value:
        case Ref():
            return subject_text(value)
        case str() | Owner():
            return str(value)
        case None:
            return "none"
        case Conservation():
            return equation_text(value)
        case Enum():
            return str(value.value)
        case Mapping():
            return ", ".join(f"{name} {value_text(part)}" for name, part in value.items())
        case Sequence() | Iterable():
            things = list(value)
            joint = " and " if any(isinstance(thing, Ref | Owner) for thing in things) else ", "
            return joint.join(map(value_text, things)) or "nothing"
    return str(value)


def state_text(snapshot: Snapshot) -> str:
    """A state as text: the pools, requests, passes in flight, records and nodes of the tree."""
    lines = [f"step {snapshot.step}", *map(conservation_line, snapshot.pools)]
    lines += [f"{pool.name} free, in order: {list(pool.free)}" for pool in snapshot.pools]
    for request in snapshot.requests or ():
        lines.append(
            f"request r{request.id}: {request.place}, prompt {request.prompt_len}, "
            f"outputs {request.num_outputs} of {request.max_new_tokens}, namespace {request.namespace}, "
            f"priority {request.priority}"
        )
    for view in snapshot.launches or ():
        computed = ", ".join(f"r{request} [{start}, {end})" for request, start, end in view.entries)
        lines.append(f"launch {view.launch} in flight: {computed}")
    if snapshot.is_paused:
        lines.append("paused")
    for record in snapshot.records or ():
        lines.append(
            f"record of {record.owner}: row {record.row}, protected {record.protected_len}, "
            f"committed {record.committed_len}, launched {record.launched_len}, allocated {record.allocated_len}, "
            f"frontier {max(record.frontiers)}, "
            f"lock {record.receipt}"
        )
        for component, units in zip(snapshot.components, record.units, strict=True):
            lines.append(f"  {component.pool}: {list(units)}")
    for node in snapshot.nodes or ():
        held = ", ".join(
            f"{component.pool} {list(units) if live else 'tombstone'} locks {locks}"
            for component, units, live, locks in zip(
                snapshot.components, node.units, node.live, node.locks, strict=True
            )
        )
        lines.append(f"node n{node.id} under n{node.parent}: [{node.start}, {node.end}) {held}, used {node.last_used}")
    return "\n".join(lines)
