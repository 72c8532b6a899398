"""The reservation of a request suffices, its units are free when taken, and the admitted range is computed.

On a server: An admitted request runs out of pages: it is retracted, or the allocation fails and ends the scheduler.
"""

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, owner_ref, request_ref


class ReservationCode(Code):
    EXCEEDED = "took {excess} more units of {pool} than were reserved"
    RAN_OUT = "needs {want} reserved units of {pool}, but {free} are free"
    OTHER_RANGE_LAUNCHED = (
        "launch {launch} computes [{start}, {end}), but it was admitted for [{want_start}, {want_end})"
    )


@invariant(When.OP, on=(seen.Admitted,))
def reservations_cover_taken_units(change: Transition) -> Evidence:
    """An admitted request takes no more units of any pool in a step than were reserved for it."""
    pools = {component.pool for component in change.after.components}
    firm: dict[int, dict[str, int]] = {}
    for event in change.in_order(seen.Admitted, seen.Taken, seen.Freed):
        if isinstance(event, seen.Admitted):
            pages = firm.setdefault(event.request_id, {})
            for pool, count in event.firm:
                pages[pool] = pages.get(pool, 0) + count
        elif (
            isinstance(event, (seen.Taken, seen.Freed))
            and event.owner.kind == seen.REQUEST_KIND
            and event.owner.id in firm
        ):
            pages = firm[event.owner.id]
            if event.pool in pools and isinstance(event, seen.Taken):
                pages[event.pool] = pages.get(event.pool, 0) - len(event.units)
                if pages[event.pool] < 0:
                    excess = -pages[event.pool]
                    yield found(owner_ref(event.owner), ReservationCode.EXCEEDED, pool=event.pool, excess=excess)
            elif event.pool in pools and isinstance(event, seen.Freed) and event.cause == seen.FreeCause.ROLLED_BACK:
                pages[event.pool] = pages.get(event.pool, 0) + len(event.units)


@invariant(When.OP, on=(seen.Admitted, seen.Launched, seen.LoadPlanned, seen.RanOut))
def reserved_units_never_run_out(change: Transition) -> Evidence:
    """Reserved units are free when they are taken.

    Takes of requests (RanOut) and of loads (Refused) are checked.  Two injected faults are not violations: a refusal
    although enough units are free, and a shortage while a backup that began in this step is in progress.
    """
    backups = set[int]()  # in progress, of those that began in this step
    for event in change.in_order(seen.CopyBegan, seen.CopyEnded, seen.RanOut, seen.Refused):
        if isinstance(event, seen.CopyBegan):
            backups.update([event.job] if event.to_host else [])
        elif isinstance(event, seen.CopyEnded):
            backups.discard(event.job)
        elif isinstance(event, (seen.RanOut, seen.Refused)) and event.want > event.free and not backups:
            values = {"pool": event.pool, "want": event.want, "free": event.free}
            if isinstance(event, seen.RanOut):
                yield found(request_ref(event.request_id), ReservationCode.RAN_OUT, **values)
            elif event.owner.kind == seen.LOAD_KIND:
                yield found(owner_ref(event.owner), ReservationCode.RAN_OUT, **values)


@invariant(When.OP, on=(seen.Launched,))
def launches_match_reservations(change: Transition) -> Evidence:
    """A pass computes exactly the range for which its request was admitted in the step."""
    admitted: dict[int, tuple[int, int]] = {}
    for event in change.pass_events:
        if isinstance(event, seen.Admitted):
            admitted[event.request_id] = (event.start, event.end)
        elif isinstance(event, seen.Launched):
            for request, start, end in event.entries:
                want = admitted.pop(request, (start, end))
                if want != (start, end):
                    values = {"launch": event.launch, "start": start, "end": end}
                    values |= {"want_start": want[0], "want_end": want[1]}
                    yield found(request_ref(request), ReservationCode.OTHER_RANGE_LAUNCHED, **values)
