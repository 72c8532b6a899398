"""The verdict of a night: its exit code, and the reasons."""

from swarden.harness.core.driver import STUCK
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.process import FAULT
from swarden.harness.search.archive import FAILING, FindingOfNight, Night, Status
from swarden.harness.search.outcome import NOT_JUDGED, VERDICTS

NO_VERDICT = {ExitCode.MISUSE: "not readable"}


def exit_code_of(night: Night) -> ExitCode:
    """The exit code of a night; excused and fixed findings do not count, nor do known bugs in a gate."""
    codes = [ExitCode.MISUSE] * bool(night.errors)
    codes += [ExitCode.NONDETERMINISTIC for one in night.engines if one.diverged]
    codes += [ExitCode.RED] * bool(red_reasons(night))
    codes += [code_of(one) for one in night.findings if not excuse_of(night, one)]
    codes += [ExitCode.VIOLATED for one in night.engines if one.tallies.known and not night.is_gate]
    return worst(codes)


def excuse_of(night: Night, finding: FindingOfNight) -> str:
    """The reason for which a finding does not make the night red; "" if there is none."""
    if finding.quarantine is not None and finding.is_quarantined(night.name):
        return f"quarantined until {finding.quarantine.until}: {finding.quarantine.reason}"
    is_known = finding.was_open and finding.sighting.status in FAILING
    return "open before this change" if night.is_gate and is_known else ""


def red_reasons(night: Night) -> list[str]:
    """The reasons for which a night without a finding is red."""
    missed = [one for one in night.canaries if one.mutant and not one.law]
    return [
        *(f"{one.engine}: canary {one.mutant} missed in {one.runs} runs" for one in missed),
        *(f"{one.engine}: {owed}" for one in night.engines for owed in one.owed),
    ]


def verdict_of(night: Night) -> str:
    """The verdict in words."""
    code = exit_code_of(night)
    if code is ExitCode.CLEAN and any(one.why_not_judged for one in night.engines):
        return NOT_JUDGED
    return (VERDICTS | NO_VERDICT)[code]


def code_of(finding: FindingOfNight) -> ExitCode:
    """The exit code of a finding without an excuse."""
    match finding.sighting.status:
        case Status.FIXED:
            return ExitCode.CLEAN
        case Status.ERROR:
            return ExitCode.MISUSE
        case Status.FLAKY:
            return ExitCode.NONDETERMINISTIC
    if finding.fingerprint.startswith(f"{FAULT}/"):
        return ExitCode.FAULT
    return ExitCode.STUCK if finding.fingerprint == STUCK else ExitCode.VIOLATED
