"""Bugs of the formula for the frontier, below which windowed pages are freed."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

WINDOW = "swarden.engine_under_test.components"
FRONTIER = "return align_down(max(0, position - kept_len(window=window, page_size=page_size)), page_size)"

bug(
    "B14",
    "sglang pull 22470: with a page larger than the window the last page to be published was freed already",
    at=f"{WINDOW}:kept_len",
    healthy="return align_up(max(lookback(window), page_size), page_size)",
    broken="return lookback(window)",
    caught_by=(
        "published_prefixes_match",
        "live_nodes_hold_their_pages",
        "frontiers_spare_the_window",
        "reservations_match_planner",
    ),
)

bug(
    "B89",
    "sglang releases 0.5.10 to 0.5.23, reproduced: a prefix continued in a page without an SWA peer, so in page 0",
    at=f"{WINDOW}:window_frontier",
    healthy=FRONTIER,
    broken="return align_up(max(0, position - lookback(window)), page_size)",
    caught_by=(
        "units_in_flight_are_pinned",
        "last_token_keeps_its_page",
        "frontiers_spare_the_window",
        "writes_go_to_private_units",
        "slots_hold_their_prefix",
    ),
)

bug(
    "S8",
    "SGLang counts the window without the token itself: read as ours, the tail of a match is one page too short",
    at=f"{WINDOW}:tail_len",
    healthy="return align_up(lookback(window), page_size)",
    broken="return align_up(max(lookback(window) - page_size, 1), page_size)",
    caught_by=(
        "matches_are_valid",
        "matches_are_longest",
        "locks_cover_pages_read",
        "window_locks_are_minimal",
        "units_in_flight_are_pinned",
    ),
)
