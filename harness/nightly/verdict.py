"""The verdict of a night: its exit code, and the reasons."""

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.nightly.archive import FAILING, FindingOfNight, Night, Status
from swarden.harness.search.judgement import NOT_JUDGED, ONLY_KNOWN, VERDICTS, Judgement, code_of_failure, judged

NOT_READABLE = "not readable"
OPEN = "swarden archive show {name} has the story: fix the engine, or put the finding in quarantine until a date."
NEXT = {
    VERDICTS[ExitCode.FAULT]: "Report the error of swarden, with the op-log of {name}.",
    NOT_READABLE: "swarden archive verify names each file that cannot be read; none was removed.",
    VERDICTS[ExitCode.NONDETERMINISTIC]: "Equal runs differ: look for time, hashes or threads in the engine.",
    VERDICTS[ExitCode.VIOLATED]: OPEN,
    VERDICTS[ExitCode.STUCK]: OPEN,
    VERDICTS[ExitCode.RED]: "The reasons say what the traffic did not reach, or which canary the laws did not find.",
    ONLY_KNOWN: "Nothing is new. A night with --with-fix all searches behind the known bugs.",
    NOT_JUDGED: "Nothing has failed, and the reasons say why that proves nothing yet.",
}


def judgement_of(night: Night) -> Judgement:
    """The judgement of a night; excused and fixed findings do not count."""
    codes = [ExitCode.MISUSE if night.errors else ExitCode.CLEAN]
    codes += [ExitCode.NONDETERMINISTIC for engine in night.engines if engine.diverged]
    codes += [ExitCode.RED for _ in red_reasons(night)]
    codes += [code_of(finding) for finding in night.findings if not excuse_of(night, finding)]
    has_known = any(engine.tallies.known for engine in night.engines)
    judgement = judged(codes, has_known=has_known, is_judged=not any(engine.why_not_judged for engine in night.engines))
    return judgement._replace(verdict=NOT_READABLE) if judgement.exit_code is ExitCode.MISUSE else judgement


def next_step(night: Night) -> str:
    """What to do after the night; "" if there is nothing to do."""
    code, verdict = judgement_of(night)
    counting = [finding for finding in night.findings if not excuse_of(night, finding) and code_of(finding) is code]
    return NEXT.get(verdict, "").format(name=counting[0].folder if counting else "")


def excuse_of(night: Night, finding: FindingOfNight) -> str:
    """The reason for which a finding does not make the night red; "" if there is none."""
    if finding.quarantine is not None and finding.is_quarantined(night.name):
        return f"quarantined {finding.quarantine}"
    is_known = finding.was_open and finding.sighting.status in FAILING
    return "open before this change" if night.is_gate and is_known else ""


def red_reasons(night: Night) -> list[str]:
    """The reasons for which a night without a finding is red."""
    return [
        *(f"{canary.engine}: canary {canary.result}" for canary in night.canaries if canary.is_missed),
        *(f"{engine.engine}: {owed}" for engine in night.engines for owed in engine.owed),
    ]


def unjudged(night: Night) -> list[str]:
    """A line for each engine whose coverage was not judged."""
    whys = {engine.engine: engine.why_not_judged for engine in night.engines}
    return [f"{name} is not judged: {why}" for name, why in whys.items() if why]


def code_of(finding: FindingOfNight) -> ExitCode:
    """The exit code of a finding without an excuse."""
    match finding.sighting.status:
        case Status.FIXED:
            return ExitCode.CLEAN
        case Status.ERROR:
            return ExitCode.MISUSE
        case Status.FLAKY:
            return ExitCode.NONDETERMINISTIC
    return code_of_failure(finding.fingerprint)
