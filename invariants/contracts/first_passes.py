"""The first pass of a request begins behind its cached prefix.

On a server: A prompt is computed that is cached: latency and work, while all answers are right.
"""

from collections.abc import Callable, Mapping, Sequence

from swarden.invariants.events import Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.prefixes import Columns, columns_of, longest_usable
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref

ColumnsOf = Callable[[Snapshot, RequestView, Expectation], Columns]


class FirstPassCode(Code):
    CACHED_TOKENS_COMPUTED = "its first pass begins at {start}, but {usable} tokens of it are cached"
    OFFLOADED_TOKENS_COMPUTED = "its first pass begins at {start}, but {usable} tokens of it are in host memory"


def shares_prefixes_without_states(change: Transition) -> bool:
    """Do requests share prefixes, in an engine without states?"""
    return change.after.limits.shares_prefixes and change.after.stateful is None


@invariant(When.STEP, needs=("nodes", "requests", "records"), on=(Launched,), given=shares_prefixes_without_states)
def first_passes_skip_cached_prefixes(change: Transition) -> Evidence:
    """The first pass of a waiting request begins behind the longest prefix of it that was cached all the step.

    At least its last token is computed.  Turns of sessions are not checked, nor are requests that ask not to be cached.
    """
    yield from _computed_again(change, _of_nodes)


def has_blocks_of_one_size(change: Transition) -> bool:
    """Has the engine one page size, no states and no drafts?  For drafts the last block of a hit may be recomputed."""
    sizes = {component.page_size for component in change.after.components}
    return shares_prefixes_without_states(change) and len(sizes) == 1 and not change.after.limits.draft_len


@invariant(When.STEP, needs=("cached_columns", "requests", "records"), on=(Launched,), given=has_blocks_of_one_size)
def first_passes_skip_cached_blocks(change: Transition) -> Evidence:
    """The first pass of a waiting request begins behind its longest usable prefix of blocks that stayed cached.

    As `first_passes_skip_cached_prefixes`, for an engine that finds its blocks by hashes.
    """
    yield from _computed_again(change, _of_hashes)


def has_pages_of_one_size_and_no_windows(change: Transition) -> bool:
    """Has the engine one page size, and states as the only windows?

    A load may need more pages of another window than the next token reads.
    """
    after = change.after
    return after.limits.shares_prefixes and len(set(after.page_sizes)) == 1 and after.windowed == after.stateful


@invariant(
    When.STEP,
    needs=("offloaded_columns", "requests", "records"),
    on=(Launched,),
    given=has_pages_of_one_size_and_no_windows,
)
def first_passes_skip_offloaded_blocks(change: Transition) -> Evidence:
    """The first pass of a waiting request begins behind its longest usable prefix of blocks that stayed in host memory.

    If drafts take slots ahead, it may compute one block more, the last one, for the layers of the drafter (vllm pull
    52771).
    """
    code = FirstPassCode.OFFLOADED_TOKENS_COMPUTED
    spared = change.after.limits.page_size if change.after.limits.draft_row_len else 0
    yield from _computed_again(change, _in_host_memory, code, spared)


def _computed_again(
    change: Transition,
    columns_in: ColumnsOf,
    code: FirstPassCode = FirstPassCode.CACHED_TOKENS_COMPUTED,
    spared: int = 0,
) -> Evidence:
    """The first passes that compute tokens of a usable prefix; the last `spared` tokens of it may be computed."""
    before, page_size = change.before, change.after.limits.page_size
    for event in change.events_of(Launched):
        for request_id, start, _ in event.entries:
            request, expected = before.request_by_id.get(request_id), change.reference.expectations.get(request_id)
            if request is None or expected is None or expected.is_uncached or not _is_new(change, request):
                continue
            most = (request.prompt_len + request.num_outputs - 1) // page_size
            was, now = (columns_in(state, request, expected) for state in (before, change.after))
            usable = longest_usable(before, [column[:most] for column in _kept(was, now)])
            if start < usable.length - spared:
                yield found(request_ref(request_id), code, start=start, usable=usable.length)


def _is_new(change: Transition, request: RequestView) -> bool:
    """Does a request wait, without a record and without a load?"""
    has_record = request.id in change.before.record_by_request
    return request.place == Place.WAITING and not (has_record or request.session or request.awaits)


def _of_nodes(state: Snapshot, request: RequestView, expected: Expectation) -> Columns:
    return columns_of(state, expected.namespace, expected.tokens[: request.prompt_len + request.num_outputs])


def _of_hashes(state: Snapshot, request: RequestView, _expected: Expectation) -> Columns:
    return _columns(state.cached_columns, state, request)


def _in_host_memory(state: Snapshot, request: RequestView, _expected: Expectation) -> Columns:
    return _columns(state.offloaded_columns, state, request)


def _columns(pages: Mapping[int, Sequence[Sequence[int]]] | None, state: Snapshot, request: RequestView) -> Columns:
    return [list(column) for column in (pages or {}).get(request.id, ((),) * len(state.components))]


def _kept(was: Columns, now: Columns) -> Columns:
    """Per component the units of cached pages; 0 for a page that was not cached during the whole step."""
    return [
        [unit if later[place : place + 1] == [unit] else 0 for place, unit in enumerate(earlier)]
        for earlier, later in zip(was, now, strict=True)
    ]
