"""How a campaign, an exhaustive search, a night or a backtest has ended: the exit code and the verdict in words."""

from collections.abc import Iterable
from typing import NamedTuple

from swarden.harness.core.driver import STUCK
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.process import FAULT
from swarden.harness.search.keys import BEFORE_HASH

NOT_JUDGED = "not judged"
ONLY_KNOWN = "failed by known bugs only"
VERDICTS = {
    ExitCode.FAULT: "internal error",
    ExitCode.MISUSE: "a fault of the target",
    ExitCode.NONDETERMINISTIC: "not deterministic",
    ExitCode.VIOLATED: "violated",
    ExitCode.STUCK: "stuck",
    ExitCode.RED: "red",
    ExitCode.INTERRUPTED: NOT_JUDGED,
    ExitCode.CLEAN: "green",
}


class Judgement(NamedTuple):
    """An exit code and the verdict in words."""

    exit_code: ExitCode
    verdict: str


def judged(codes: Iterable[ExitCode], *, has_known: bool = False, is_judged: bool = True) -> Judgement:
    """The judgement by the codes of all that counts.  Failures of known bugs have no code: alone, they are clean.

    Without `is_judged` there were too few runs for a green.
    """
    code = worst(codes)
    if code is not ExitCode.CLEAN:
        return Judgement(code, VERDICTS[code])
    return Judgement(code, ONLY_KNOWN if has_known else VERDICTS[code] if is_judged else NOT_JUDGED)


def code_of_failure(fingerprint: str) -> ExitCode:
    """The exit code of a confirmed failure that no known bug explains."""
    if fingerprint.startswith(f"{FAULT}/"):
        return ExitCode.FAULT
    return ExitCode.STUCK if fingerprint.partition(BEFORE_HASH)[0] == STUCK else ExitCode.VIOLATED
