"""The laws that an op-log violates, in the process of a release."""

from harness.core.oplog import OpLog
from harness.core.replay import repeat


def laws_of(path, engine):
    """The laws that fail, or the errors; each run must end alike."""
    repeated = repeat(OpLog.load(path, engine=engine), runs=2)
    assert repeated.first_difference is None
    failure = repeated.reported.driver.failure
    return {name.split("/")[0] for name in failure.fingerprints} if failure is not None else set()


def law_of(path, engine):
    """The law or error that an op-log was saved for."""
    return str(OpLog.load(path, engine=engine).header.expected).split("/")[0]
