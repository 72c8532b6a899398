"""The symptoms that a program of a release can show of a failure."""

from collections.abc import Mapping

from swarden.harness.core.driver import Failure
from swarden.harness.core.program import NoProgram

READ, TOKENS, UNFINISHED, MEMORY, RESET = "read", "tokens", "unfinished", "memory", "reset"
EVENTS, CACHED = "events", "cached"
# By name: a driver's error, laws and contracts.  Of the others, what is read or answered is a symptom.
OF_LAWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("stuck", "work_makes_progress", "drained_engine_is_empty"), (UNFINISHED, MEMORY)),
    "idle_engine_can_be_reset": (RESET,),
    "router_view_matches_cache": (EVENTS,),
    **dict.fromkeys(("ended_requests_leave_their_kv_cached", "served_blocks_are_hit"), (CACHED,)),
    "stored_blocks_have_known_parents": (),
}


def exception_of(failure: Failure) -> list[str]:
    """The class of the exception that the release has raised, and its innermost function; [] if it has raised none."""
    if failure.error is None or not failure.frames:
        return []
    return [type(failure.error).__name__, failure.frames[-1].split()[1]]


def symptoms_of(failure: Failure) -> list[str]:
    """Those of a failure that is no exception; raises NoProgram if there are none."""
    if exception_of(failure):
        return []
    names = [fingerprint.partition("/")[0] for fingerprint in failure.fingerprints]
    symptoms = [symptom for name in names for symptom in OF_LAWS.get(name, (READ, TOKENS))]
    if not symptoms:
        raise NoProgram(f"no program looks at {failure.fingerprint}; write it --as issue")
    return [*dict.fromkeys(symptoms)]
