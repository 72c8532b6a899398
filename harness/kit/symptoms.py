"""The symptoms that a program of a release can show of a failure: an exception, ends of requests, or reads."""

from swarden.harness.core.driver import Failure

# By name: a driver's error, laws and contracts.
OF_ENDS = frozenset({"stuck", "work_makes_progress", "drained_engine_is_empty"})  # need no content
OF_RESETS = frozenset({"idle_engine_can_be_reset"})
OF_CACHES = frozenset(  # no program looks at these
    {"ended_requests_leave_their_kv_cached", "router_view_matches_cache", "stored_blocks_have_known_parents"}
)


def exception_of(failure: Failure) -> list[str]:
    """The class of the exception that the release has raised, and its innermost function; [] if it has raised none."""
    if failure.error is None or not failure.frames:
        return []
    return [type(failure.error).__name__, failure.frames[-1].split()[1]]


def is_of_ends(failure: Failure) -> bool:
    return not OF_ENDS.isdisjoint(_names(failure))


def is_refused_reset(failure: Failure) -> bool:
    return OF_RESETS.issuperset(_names(failure))


def is_of_caches(failure: Failure) -> bool:
    return OF_CACHES.issuperset(_names(failure))


def _names(failure: Failure) -> list[str]:
    return [fingerprint.partition("/")[0] for fingerprint in failure.fingerprints]
