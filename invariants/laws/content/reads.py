"""The KV that a pass reads: every slot that the model needs, with the correct content.

On a server: Attention reads KV of other tokens, or not all that it needs: a wrong answer, silently, of this client.
"""

from array import array

from swarden.invariants.events import Compared, Launched, PrefixesCompared, Read
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import LaunchView
from swarden.invariants.violation import Code, Evidence, Found, Ref, component_ref, found, request_ref, unit_ref
from swarden.invariants.windows import lookback


class ReadCode(Code):
    UNWRITTEN = "position {position} in {place} is read and was never written"
    OTHER_CONTENT = "position {position} in {place} holds the KV of other tokens (that prefix belongs to {known_from})"
    NOT_READ = "{place} is not read, want [{want_start}, {want_end})"
    READ_IN_PART = "only [{start}, {end}) of {place} is read, want [{want_start}, {want_end})"


def reads_are_reported(change: Transition) -> bool:
    """Was a `Read` reported?"""
    return Read in change.by_type


def prefixes_are_known(change: Transition) -> bool:
    """Were reads compared, or can they be compared with tags, because the reference has the tokens of requests?"""
    is_tagged = reads_are_reported(change) and bool(change.reference.expectations)
    return is_tagged or PrefixesCompared in change.by_type


# A fake forward reports Read, a real model Compared.  `Compared` is in `on` so that a run with a real model counts
# these invariants as not applicable (`given` is false then).  Without it they would not be counted at all.
@invariant(When.OP, on=(Read, Compared, PrefixesCompared), given=prefixes_are_known)
def slots_hold_their_prefix(change: Transition) -> Evidence:
    """Every slot that a pass reads holds the KV of exactly its request's tokens up to that position, drafts included.

    Discarded results are not checked: they may depend on slots that a failed pass did not write.
    """
    expectations = change.reference.expectations
    for event in change.events_of(Read):
        expected = (
            expectations.get(event.request_id) if (event.launch, event.request_id) not in change.discarded else None
        )
        if expected is None:
            continue
        is_before = change.after.components[event.component].has_states  # a state is from before all drafts
        drafts = () if is_before else change.drafts.get((event.launch, event.request_id), ())
        wanted = expected.tags_of(event.start, event.start + len(event.tags), drafts)
        if event.tags != wanted:
            yield from _wrong_content(change, event, wanted)
    for compared in change.events_of(PrefixesCompared):
        for wrong in compared.wrong:
            if (compared.launch, wrong.request_id) not in change.discarded:
                place = unit_ref(change.after.pool(compared.pool), wrong.unit)
                holders = tuple(map(request_ref, wrong.known_from)) if wrong.is_written else None
                yield _wrong_slot(wrong.request_id, wrong.position, place, holders)


@invariant(When.OP, on=(Read, Compared), given=reads_are_reported)
def reads_cover_the_window(change: Transition) -> Evidence:
    """A pass reads all tokens that its entries see: the whole prefix, or the tokens within the window, or a state.

    Of states it reads the one before the first token that it computes.

    Discarded results are not checked, nor are passes that report no read in this step: they may have read before.
    """
    reads = {(read.launch, read.request_id, read.component): read for read in change.events_of(Read)}
    read_in = {launch for launch, _, _ in reads}
    components = change.after.components
    launched: list[LaunchView | Launched] = [*(change.before.launches or ()), *change.events_of(Launched)]
    for view in launched:
        for request, start, end in view.entries if view.launch in read_in else ():
            if (view.launch, request) in change.discarded:
                continue
            for index, component in enumerate(components):
                read = reads.get((view.launch, request, index))
                first = 0 if component.window is None else max(0, start - lookback(component.window))
                want_end = start if component.has_states else end
                if read is not None and read.start <= first and read.start + len(read.tags) >= want_end:
                    continue
                want = {"place": component_ref(components, index), "want_start": first, "want_end": want_end}
                if read is None:
                    yield found(request_ref(request), ReadCode.NOT_READ, **want)
                else:
                    until = read.start + len(read.tags)
                    yield found(request_ref(request), ReadCode.READ_IN_PART, start=read.start, end=until, **want)


def _wrong_content(change: Transition, read: Read, wanted: "array[int]") -> Evidence:
    """The first slot of a read whose tag is not the wanted one."""
    pairs = enumerate(zip(read.tags, wanted, strict=False))
    offset = next((offset for offset, (tag, want) in pairs if tag != want), len(wanted))
    tag, position = read.tags[offset], read.start + offset
    expectations = change.reference.expectations
    holders = tuple(request_ref(request_id) for request_id, expected in expectations.items() if tag in expected.tags)
    yield _wrong_slot(read.request_id, position, _place(change, read, position), holders if tag else None)


def _wrong_slot(request_id: int, position: int, place: Ref, known_from: tuple[Ref, ...] | None) -> Found:
    """A slot that was never written (None), or holds the KV of another prefix, which these requests have."""
    subject = request_ref(request_id)
    if known_from is None:
        return found(subject, ReadCode.UNWRITTEN, position=position, place=place)
    return found(subject, ReadCode.OTHER_CONTENT, position=position, place=place, known_from=known_from)


def _place(change: Transition, read: Read, position: int) -> Ref:
    """The unit of a position that was read; its pool or group if neither state has a unit of the request for it."""
    for snapshot in (change.after, change.before):
        record = snapshot.record_by_request.get(read.request_id) or snapshot.transfer_records.get(read.request_id)
        units = record.units[read.component] if record is not None else ()
        page = snapshot.components[read.component].page_index(position)
        if page < len(units) and units[page]:
            return unit_ref(snapshot.pool(read.pool), units[page])
    return component_ref(change.after.components, read.component)
