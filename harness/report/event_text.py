"""Ops and events in words: events that a table shows as results, and those that a history shows beside them."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from swarden.harness.core.ops import Drain, Op, Recipe, Step, Submit, Turn, name_of
from swarden.harness.report.wording import listed
from swarden.invariants import events as seen
from swarden.invariants.conservation import conservation_of
from swarden.invariants.events import REQUEST_KIND, Finished, FinishReason, Retracted
from swarden.invariants.kinds import Place
from swarden.invariants.view import Snapshot

MAX_TOKENS = 8  # token ids of a prompt that are shown
SHOWN_APART = {"op", "engine", "recipe", "tokens", "max_new_tokens"}  # arguments that are not shown as "name value"
ORDINALS = {"request": "live request", "session": "open session"}  # arguments that are ordinals of live objects
RESULTS: dict[type, str] = {  # the events that are shown as results, each with its text
    seen.Rejected: "rejected r{request_id}: {reason}",
    seen.Admitted: "admitted r{request_id} [{start}, {end})",
    seen.LoadPlanned: "r{request_id} loads from the host",
    seen.Parked: "parked r{request_id}",
    seen.Retracted: "retracted r{request_id}",
    seen.RanOut: "r{request_id} ran out of {pool}: wants {want}, free {free}",
    seen.Preempted: "preempted r{request_id}",
    seen.GaveWay: "r{request_id} gave way to r{by}",
    seen.Launched: "launched pass {launch}",
    seen.Failed: "pass {launch} failed: {reason}",
    seen.Late: "pass {launch} is late",
    seen.Discarded: "discarded the result of r{request_id}",
    seen.Finished: "finished r{request_id}: {reason}",
    seen.Tombstoned: "evicted {component} of n{node}",
    seen.Removed: "evicted n{node}",
    seen.Demoted: "evicted n{node} to the host",
    seen.Recovered: "n{node} live again in {component}",
    seen.CopyEnded: "copy {job} ended",
    seen.Fired: "fault {fault} fired",
    seen.Paused: "paused",
    seen.Resumed: "resumed",
    seen.TurnRefused: "refused r{request_id} as a turn",
    seen.Reserved: "reserved pages for r{request_id}",
    seen.HandedOver: "handed over r{request_id}",
    seen.TakenOver: "took over r{request_id}",
    seen.SetAside: "set aside r{request_id}",
    seen.LetGo: "released transfer of r{request_id}: {cause}",
    seen.PeerGaveUp: "the other engine gave up r{request_id}",
}
IN_A_HISTORY: dict[type, str] = {
    **RESULTS,
    seen.Matched: "matched r{request_id}: {length} cached tokens",
    seen.Inserted: "inserted r{request_id} [{protected_len}, {end})",
    seen.Slid: "slid the window of r{request_id} in {pool} from {before} to {frontier}",
    seen.Admitted: "admitted r{request_id} [{start}, {end}), demand {demand}",
    seen.LoadPlanned: "planned load l{job} for r{request_id} [0, {length}), demand {firm}, and {demand} behind it",
    seen.Loaded: "loaded r{request_id} [0, {length})",
    seen.Locked: "locked by receipt {receipt}",
    seen.Unlocked: "unlocked by receipt {receipt}",
    seen.Split: "split n{node} after {length} tokens: n{upper} is above it",
    seen.Dropped: "n{node} lost its {component}",
    seen.Stored: "n{node} got its {component}",
}


def event_text(event: Any, before: Snapshot | None, texts: dict[type, str] = IN_A_HISTORY) -> str:
    """An event in words; "" if it has none.  Where memory was short, with what that state `before` the step lacked."""
    if type(event) not in texts:
        return ""
    words = [texts[type(event)].format_map({name: value_of(value) for name, value in event._asdict().items()})]
    words += [event.detail] if isinstance(event, seen.Finished) else []
    words += [shortage_text(event, before)] if before is not None else []
    return ": ".join(filter(None, words))


def value_of(value: object) -> str:
    """A value of an event as text: counts by pool, or a list that is cut."""
    if isinstance(value, tuple | list):
        counts = [pair for pair in value if isinstance(pair, tuple) and len(pair) == 2]
        return " ".join(f"{pool} {count}" for pool, count in counts) if counts else f"[{listed(value)}]"
    return str(value)


def shortage_text(event: object, before: Snapshot) -> str:
    """By pool, the units for the next tokens, as in "full needs 2, 0 free, 1 evictable: lacks 1"; "" without KV.

    They are those of a request that has ended for want of memory, or of all that run where one is retracted.
    """
    requests: Collection[int] = ()
    if isinstance(event, Finished) and event.reason == FinishReason.OUT_OF_MEMORY:
        requests = (event.request_id,)
    elif isinstance(event, Retracted):
        requests = [request.id for request in before.requests or () if request.place == Place.RUNNING]
    needed = Counter[str]()
    for record in before.records or ():
        if record.owner.kind == REQUEST_KIND and record.owner.id in requests:
            length = record.launched_len + 1 + before.limits.lookahead_len
            for component, units in zip(before.components, record.units, strict=True):
                needed[component.pool] += max(0, -(-component.slot_len(length) // component.page_size) - len(units))
    texts = []
    for pool, count in needed.items():
        terms = conservation_of(before.pool_by_name[pool])
        lack = count - terms.free - terms.evictable
        text = f"{pool} needs {count}, {terms.free} free, {terms.evictable} evictable"
        texts.append(f"{text}: lacks {lack}" if lack > 0 else text)
    return "; ".join(texts)


def op_text(op: Op) -> str:
    """An op in words, as in "submit 8 tokens by path 0.1, 5 new, priority 2"."""
    if isinstance(op, Step | Drain):
        return name_of(op)
    words = []
    if isinstance(op, Submit | Turn):
        words = [_prompt_text(op.recipe, op.tokens), f"{op.max_new_tokens} new"]
    bare = type(op)()
    for name in op.__struct_fields__:
        value = getattr(op, name)
        if name in ORDINALS:
            words.append(f"the {_ordinal(value)} {ORDINALS[name]}")
        elif name not in SHOWN_APART and value != getattr(bare, name):
            words.append(f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return f"{name_of(op)} {', '.join(words)}".rstrip()


def _prompt_text(recipe: Recipe, tokens: Sequence[int] | None) -> str:
    """A prompt in words: its first token ids, or its recipe as in "12 tokens by path 0.1.1 after prompt 3 less 2"."""
    if tokens is not None:
        more = f" and {len(tokens) - MAX_TOKENS} more" if len(tokens) > MAX_TOKENS else ""
        return f"tokens {' '.join(map(str, tokens[:MAX_TOKENS]))}{more}"
    own = f"{len(recipe.path) * recipe.stretch} tokens by path {'.'.join(map(str, recipe.path))}"
    after = "" if recipe.continues is None else f" after the {_ordinal(recipe.continues)} prompt"
    return f"{own}{after}{f' less {recipe.cut}' if recipe.cut else ''}"


def _ordinal(number: int) -> str:
    """The ordinal of a number that counts from 0, as in "1st"."""
    place = number + 1
    return f"{place}{'th' if place % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"
