"""All invariants, in the order in which a reader wants to hear of them: causes before consequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from invariants import (
    admission,
    batches,
    cache,
    content,
    cursors,
    eviction,
    locks,
    model,
    peers,
    pools,
    progress,
    tree,
)
from invariants.base import Invariant, Transition, Violation, When

CATALOG: tuple[Invariant, ...] = (
    pools.the_padding_unit_is_never_moved,
    pools.units_move_only_by_their_owner,
    pools.a_refused_take_changes_nothing,
    pools.fences_wait_for_a_launch,
    content.writes_go_to_private_units,
    eviction.eviction_spares_locked_nodes,
    cache.matches_are_the_longest_valid,
    batches.batches_are_well_formed,
    batches.computation_goes_on_where_it_stopped,
    admission.reservations_cover_what_is_taken,
    admission.admitted_work_never_runs_out,
    admission.only_the_impossible_is_rejected,
    admission.the_impossible_is_rejected,
    admission.retraction_is_necessary,
    admission.retracted_requests_hold_nothing,
    admission.finished_requests_hold_nothing,
    admission.only_who_cannot_go_on_runs_out_of_memory,
    batches.requests_are_in_one_place,
    tree.tree_is_well_formed,
    tree.live_nodes_hold_live_pages,
    locks.locks_equal_their_receipts,
    locks.receipts_belong_to_holders,
    locks.locks_nest,
    locks.locked_windows_are_live,
    locks.locks_cover_what_is_read,
    cursors.cursors_are_ordered,
    cursors.cursors_are_aligned,
    cursors.rows_hold_the_pages_of_their_record,
    cursors.rows_begin_with_the_tree_path,
    cursors.windowed_pages_go_with_the_frontier,
    cursors.frontiers_spare_the_window,
    cursors.private_windows_are_bounded,
    cursors.the_last_token_keeps_its_page,
    peers.slot_peers_stay_in_their_place,
    peers.peers_are_one_to_one_and_live,
    peers.a_free_unit_has_no_peer,
    peers.every_taken_follower_unit_is_a_peer,
    peers.peers_share_their_owner,
    pools.each_unit_has_one_owner,
    pools.pools_conserve_their_units,
    tree.tree_claims_equal_facts,
    tree.pool_claims_equal_facts,
    cache.inserted_prefixes_match,
    eviction.evictions_meet_their_need,
    eviction.eviction_takes_the_dead_interior_first,
    eviction.eviction_is_least_recently_used,
    content.reads_cover_the_window,
    content.every_slot_read_holds_its_prefix,
    content.outputs_equal_the_reference,
    progress.the_ratio_is_in_range,
    progress.work_makes_progress,
    pools.drained_pools_are_full,
    model.the_model_agrees,
)

MOST_CASES = 4096  # remembered


@dataclass(slots=True)
class Counts:
    """How often an invariant was judged, and how often the engine could not give what it is about."""

    evaluated: int = 0
    not_applicable: int = 0


Tally = dict[str, Counts]


class Due(NamedTuple):
    """What a transition calls for: of these invariants the ones that are judged, the ones that still hold, the rest."""

    judged: tuple[Invariant, ...]
    unchanged: tuple[str, ...]
    not_applicable: tuple[str, ...]


class Case(NamedTuple):
    """What decides which invariants are due: the moment, the types of the events, and the parts of the state."""

    moment: When
    kinds: frozenset[type]
    missing: frozenset[str]
    unchanged: frozenset[str]


def check(change: Transition, tally: Tally, catalog: Sequence[Invariant] = CATALOG) -> list[Violation]:
    """Every violation of every invariant that is due, in the order of the catalogue; counts them in `tally`."""
    found: list[Violation] = []
    case = Case(change.when, frozenset(change.by_type), change.after.missing, change.changes.unchanged)
    due = _usually_due(case) if catalog is CATALOG else _due(case, catalog)
    for name in due.not_applicable:
        _counts(tally, name).not_applicable += 1
    for name in due.unchanged:
        _counts(tally, name).evaluated += 1
    for one in due.judged:
        counts = tally.get(one.name) or _counts(tally, one.name)
        if one.given is None or one.given(change):
            counts.evaluated += 1
            for subject, detail in one.find(change):
                found.append(Violation(one.name, subject, detail))
        else:
            counts.not_applicable += 1
    return found


def _due(case: Case, catalog: Sequence[Invariant]) -> Due:
    applicable: list[Invariant] = []
    not_applicable: list[str] = []
    for one in catalog:
        if one.when in (When.OP, case.moment) and not (one.on and one.on.isdisjoint(case.kinds)):
            if one.needs.isdisjoint(case.missing):
                applicable.append(one)
            else:
                not_applicable.append(one.name)
    held = [one for one in applicable if one.reads and one.reads <= case.unchanged]
    judged = tuple(one for one in applicable if one not in held)
    return Due(judged, tuple(one.name for one in held), tuple(not_applicable))


@lru_cache(maxsize=MOST_CASES)
def _usually_due(case: Case) -> Due:
    return _due(case, CATALOG)


def _counts(tally: Tally, name: str) -> Counts:
    counts = tally.get(name)
    if counts is None:
        counts = tally[name] = Counts()
    return counts
