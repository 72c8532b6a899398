"""No running request is passed over.

On a server: A client waits for its next token longer than necessary.
"""

from swarden.invariants.events import Launched, Paused
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.laws.lifecycle.flights import launch_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class RunningCode(Code):
    PASSED_OVER = "runs, and is not in {launch}, which computes {count} tokens of at most {most}"
    NOT_DECODED = "runs, and is not in {launch}, which only decodes"


def passes_have_all_running_requests(change: Transition) -> bool:
    """Does one pass have all running requests?  Not if units that were freed for them wait for a pass in flight."""
    limits = change.after.limits
    is_free_at_once = limits.reuses_in_launch_order or not change.before.launches
    return is_free_at_once and not (limits.mixes_batches and limits.chunk_len is None)


@invariant(When.STEP, needs=("requests", "records", "launches"), on=(Launched,), given=passes_have_all_running_requests)
def running_requests_are_computed(change: Transition) -> Evidence:
    """A pass computes each request that decodes and is in no other pass, as long as its budget of tokens lasts.

    A request that is skipped loses a step for nothing (vllm issue 49097).  In an engine that does not mix decodes with
    prefills, only of passes without a prefill, which have no budget.
    """
    before, after, limits = change.before, change.after, change.after.limits
    busy = {entry[0] for view in (*(before.launches or ()), *(after.launches or ())) for entry in view.entries}
    most = limits.chunk_len or 0
    for event in [] if change.events_of(Paused) else change.events_of(Launched)[:1]:
        count = sum(end - start + limits.draft_len for _, start, end in event.entries)
        busy.update(entry[0] for event in change.events_of(Launched) for entry in event.entries)
        has_room = count + limits.draft_len < most if limits.mixes_batches else _only_decodes(change, event)
        for request in before.requests or () if has_room else ():
            record, later = before.record_by_request.get(request.id), after.request_by_id.get(request.id)
            is_decoding = record is not None and record.committed_len >= request.prompt_len + request.num_outputs - 1
            runs_on = later is not None and request.place == later.place == Place.RUNNING
            if is_decoding and runs_on and request.id not in busy and request.id not in change.released:
                launch = launch_ref(event.launch)
                if limits.mixes_batches:
                    yield found(request_ref(request.id), RunningCode.PASSED_OVER, launch=launch, count=count, most=most)
                else:
                    yield found(request_ref(request.id), RunningCode.NOT_DECODED, launch=launch)


def _only_decodes(change: Transition, event: Launched) -> bool:
    """Did all requests of a pass run before the step, and go on where they decode?

    A request that was retracted within the step computes its prompt again.
    """
    before = change.before.request_by_id
    running = {one.id: one for one in before.values() if one.place == Place.RUNNING and one.id not in change.released}
    return all(
        number in running and start >= running[number].prompt_len + running[number].num_outputs - 1
        for number, start, _ in event.entries
    )
