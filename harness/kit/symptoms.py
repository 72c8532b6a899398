"""The bug of a failure, as a program of a release tells it from others: the functions that fail with it."""

from collections.abc import Mapping

from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import driver_of

READ, TOKENS, FINISH, RESET = "read", "take", "finish", "reset"  # the checks of programs are these functions
EVENTS, PARENTS, CACHED, COMPUTED = "check_events", "publish", "check_cached", "run_batch"
# By name: a driver's error, laws and contracts.  Of the others, what is read or answered is a symptom.
OF_LAWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("stuck", "work_makes_progress", "drained_engine_is_empty"), (FINISH,)),
    "idle_engine_can_be_reset": (RESET,),
    "aborted_prompts_are_not_computed": (COMPUTED,),
    "router_view_matches_cache": (EVENTS,),
    "stored_blocks_have_known_parents": (PARENTS,),
    **dict.fromkeys(("ended_requests_leave_their_kv_cached", "served_blocks_are_hit"), (CACHED,)),
}


def driver_for(log: OpLog) -> Driver:
    """What runs a log for a program; raises NoProgram for a log of more than a release."""
    if log.header.mutant is not None or log.header.model or log.header.fixes:
        raise NoProgram("the op-log has a mutant, a model or fixes, and a program has the release alone")
    return driver_of(log.header)


def failure_of(log: OpLog, driver: Driver) -> Failure:
    """Run a log; raises UsageError if it does not fail."""
    for op in log.ops:
        driver.apply(op)
    if driver.failure is None:
        here = f"{log.header.engine} {target_for(log.header).version()}"
        raise UsageError(f"the op-log does not fail on {here}; name a release with the bug")
    return driver.failure


def bug_of(failure: Failure) -> tuple[list[str], dict[str, str]]:
    """The checks of the program that fail, or the innermost function of the release that does, with its exception.

    Raises NoProgram if a program has no check for the failure.
    """
    if failure.error is not None and failure.frames:
        return [], {failure.frames[-1].split()[1]: type(failure.error).__name__}
    names = [fingerprint.partition("/")[0] for fingerprint in failure.fingerprints]
    checks = list(dict.fromkeys(check for name in names for check in OF_LAWS.get(name, (READ, TOKENS))))
    if not checks:
        raise NoProgram(f"no program looks at {failure.fingerprint}; write it --as issue")
    return checks, {}
