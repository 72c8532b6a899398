"""Ranks of one engine: each has its own pools, tree and queue, and decides alone what the others decide, too.

On a server: the ranks of a group compute other batches, or wait for each other for ever: no request is answered any
more.
"""

from collections.abc import Mapping

from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, pool_ref, request_ref

RANK = "rank"


class RankCode(Code):
    OTHER_PASSES = "its passes in flight compute {own}, those of the first rank {first}"
    OTHER_REQUEST = "is {own}, on the first rank {first}"
    OTHER_RECORD = "its record is {own}, on the first rank {first}"
    OTHER_NODE = "has {count} nodes that the first rank lacks, or has with other locks or copies; one ends at {end}"
    MISSING_NODE = "lacks {count} nodes of the first rank, or has them with other locks or copies; one ends at {end}"
    OTHER_FREE = "has {own} free, on the first rank {first}"


def is_further_rank(change: Transition) -> bool:
    """Is this a rank of an engine that has several, other than the first?"""
    return change.first is not None


@invariant(When.OP, needs=("launches",), given=is_further_rank)
def ranks_compute_equal_batches(change: Transition) -> Evidence:
    """All ranks of an engine have the same passes in flight."""
    own, first = [[view.entries for view in state.launches or ()] for state in _both(change)]
    if own != first:
        yield found(Ref(RANK), RankCode.OTHER_PASSES, own=own, first=first)


@invariant(When.OP, needs=("requests", "records"), given=is_further_rank)
def ranks_have_equal_requests(change: Transition) -> Evidence:
    """Each request has the same place and the same lengths on all ranks of an engine."""
    places = [{view.id: (view.place, view.num_outputs) for view in state.requests or ()} for state in _both(change)]
    yield from _differing(RankCode.OTHER_REQUEST, *places)
    lengths = [
        {id: (one.protected_len, one.launched_len, one.allocated_len) for id, one in state.record_by_request.items()}
        for state in _both(change)
    ]
    yield from _differing(RankCode.OTHER_RECORD, *lengths)


@invariant(When.OP, needs=("nodes",), given=is_further_rank)
def ranks_have_equal_trees(change: Transition) -> Evidence:
    """The prefix trees of all ranks of an engine have the same prefixes, with the same locks and copies."""
    own, first = map(_prefixes, _both(change))
    for code, missing in ((RankCode.OTHER_NODE, own - first), (RankCode.MISSING_NODE, first - own)):
        if missing:
            (_, path), *_ = min(missing)
            yield found(Ref(RANK), code, count=len(missing), end=len(path))


@invariant(When.OP, given=is_further_rank)
def ranks_have_equal_free_units(change: Transition) -> Evidence:
    """Each pool has the same number of free units on all ranks of an engine."""
    own, first = [{pool.name: len(pool.free) for pool in state.pools} for state in _both(change)]
    for name, count in own.items():
        if count != first.get(name):
            yield found(pool_ref(name), RankCode.OTHER_FREE, own=count, first=first.get(name))


def _both(change: Transition) -> tuple[Snapshot, Snapshot]:
    assert change.first is not None
    return change.after, change.first


def _differing(code: Code, own: Mapping[int, object], first: Mapping[int, object]) -> Evidence:
    for request in sorted({*own, *first}):
        if own.get(request) != first.get(request):
            yield found(request_ref(request), code, own=own.get(request), first=first.get(request))


Prefix = tuple[tuple[int, tuple[int, ...]], tuple[int, ...], tuple[bool, ...], tuple[bool, ...]]


def _prefixes(state: Snapshot) -> set[Prefix]:
    """Per node its namespace and the tokens from the root to its end, its locks, and per component what it holds."""
    paths: dict[int, tuple[int, ...]] = {}
    by_id, found_nodes = state.node_by_id, set[Prefix]()

    def path(node: NodeView) -> tuple[int, ...]:
        if node.id not in paths:
            before = path(by_id[node.parent]) if node.parent in by_id else ()
            paths[node.id] = (*before, *node.key)
        return paths[node.id]

    for node in state.nodes or ():
        whole, copies = path(node), tuple([any(units) for units in node.copies])
        found_nodes.add(((node.namespace, whole), tuple(node.locks), tuple(node.live), copies))
    return found_nodes
