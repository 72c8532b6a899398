"""The reports of a night for people and machines: Markdown, JUnit and OpenMetrics, made from its record alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import NamedTuple
from xml.etree import ElementTree

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.files import read_whole
from swarden.harness.core.printable import LAYOUT, printable
from swarden.harness.core.registry import UnknownEngine, target_of
from swarden.harness.nightly.archive import URGENCY, EngineOfNight, FindingOfNight, Night, Status
from swarden.harness.nightly.night import Coordinator, start_of
from swarden.harness.nightly.replaying import log_path
from swarden.harness.nightly.verdict import code_of, excuse_of, judgement_of, next_step, red_reasons, unjudged
from swarden.harness.report.known_bug import BugView, view_of
from swarden.harness.report.markdown import plain, table
from swarden.harness.report.story import replay_line
from swarden.harness.report.wording import counted
from swarden.harness.search.archive_files import write
from swarden.harness.search.verification import bugs_in

MAX_STORY_BYTES = 1 << 20  # in junit.xml
KNOWN_HEADS = ("known bug", "engine", "failed runs", "effect", "upstream")
FINDING_HEADS = ("status", "engine", "finding", "runs", "replay")
ENGINE_HEADS = ("engine", "version", "runs", "engine steps", "steps per CPU second", "failed runs", "probes", "canary")
PHASE_HEADS = ("phase", "seconds", "result")


def report(night: Coordinator) -> str:
    """Judge the night, and write its reports into its folder; returns the text of the phase's line."""
    record = night.record
    details = {finding.folder: _details(night, finding) for finding in record.findings}
    reports = {"report.md": markdown(record), "junit.xml": junit(record, details), "metrics.txt": metrics(record)}
    for name, text in reports.items():
        write(night.folder / name, text.encode(), night.archive.root)
    record.exit_code, verdict = judgement_of(record)
    record.ended = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{verdict}, exit code {record.exit_code}; {night.folder / 'report.md'}"


def _details(night: Coordinator, finding: FindingOfNight) -> str:
    """The stored story of a finding, which ends with the command that replays it; without a story, the command."""
    path = log_path(night, finding)
    try:
        return read_whole(path.with_suffix(".txt"), most=MAX_STORY_BYTES).decode(errors="replace")
    except OSError:
        return str(replay_line(path)) if finding.sighting.log else ""


ROUNDS = {  # the laws that are evaluated once a round, or less often
    "valid_requests_are_answered": "rounds",
    "outputs_match_uncached_model": "of them with judged answers",
    "server_is_empty_at_rest": "with metrics at rest",
    "capacity_is_whole_at_rest": "probes of the capacity",
}


def about_server(night: Night) -> list[str]:
    """The reports of a night's server about itself, and what was sent to it; or about a launch line."""
    if not night.about:
        return []
    if night.machine is not None:
        return [night.about]
    [tallies] = (engine.tallies for engine in night.engines)
    counts = [f"{tallies.evaluated[law]} {what}" for law, what in ROUNDS.items()]
    return [night.about, f"{tallies.ops['submit']} requests in {', '.join(counts)}"]


# --- Markdown


def markdown(night: Night) -> str:
    """The page of a night as Markdown, for the summary of a job."""
    failing = [finding for finding in night.findings if code_of(finding) is not ExitCode.CLEAN]
    code, verdict = judgement_of(night)
    step, failures = next_step(night), known_of(night)
    lines = [
        f"# Night {night.name}: {verdict}",
        "",
        f"`{night.command}`, seed {night.seed}, exit code {code}.",
        "",
        *([plain(step), ""] if step else []),
        *(f"- {plain(line)}" for line in about_server(night)),
        *(f"- red: {plain(reason)}" for reason in red_reasons(night)),
        *(f"- error: {plain(error)}" for error in night.errors),
        *(f"- {plain(line)}" for line in night.not_ended),
        *(f"- not deterministic: {plain(run)}" for engine in night.engines for run in engine.diverged),
        *(f"- {plain(line)}" for line in unjudged(night)),
        "",
        f"## {counted(len(failing), 'open finding')}, {len(night.findings) - len(failing)} fixed",
        "",
        *table(FINDING_HEADS, (_row(night, finding) for finding in _sorted(night.findings))),
        "",
        *(["## Known bugs", "", *table(KNOWN_HEADS, map(_known_row, failures)), ""] if failures else []),
        "## Engines",
        "",
        *table(ENGINE_HEADS, (_engine_row(night, engine) for engine in night.engines)),
        "",
        "## Phases",
        "",
        *table(PHASE_HEADS, ((phase.name, f"{phase.seconds:.0f}", phase.line) for phase in night.phases)),
        "",
    ]
    return "\n".join(lines)


class KnownFailures(NamedTuple):
    """The failed runs of a known bug on an engine, or of several that are known together."""

    engine: str
    cause: str
    runs: int
    bugs: Sequence[BugView]


def known_of(night: Night) -> list[KnownFailures]:
    """The failures of known bugs, the most frequent of each engine first; a removed bug has its bare name."""
    failures = []
    for engine in night.engines:
        try:
            target = target_of(engine.engine)
            bugs = {name: view_of(bug, target) for name, bug in target.known_bugs().items()}
        except UnknownEngine:
            bugs = {}
        for cause, runs in engine.tallies.known.most_common():
            views = [bugs.get(name, BugView(name, "")) for name in bugs_in(cause)]
            failures.append(KnownFailures(engine.engine, cause, runs, views))
    return failures


def _known_row(failed: KnownFailures) -> Sequence[str]:
    effects = [bug.effect for bug in failed.bugs]
    upstream = [address for bug in failed.bugs for address in bug.upstream]
    return failed.cause, failed.engine, str(failed.runs), "; ".join(effects), " ".join(upstream) or "no issue found"


def _sorted(findings: Iterable[FindingOfNight]) -> list[FindingOfNight]:
    return sorted(
        findings,
        key=lambda finding: (URGENCY.index(finding.sighting.status), finding.sighting.engine, finding.fingerprint),
    )


def _row(night: Night, finding: FindingOfNight) -> Sequence[str]:
    seen, excuse = finding.sighting, excuse_of(night, finding)
    status = f"{seen.status.value} ({excuse})" if excuse else seen.status.value
    log = f"findings/{finding.folder}/{seen.log}" if seen.log else seen.why
    return status, seen.engine, finding.fingerprint, str(seen.times), log


def _engine_row(night: Night, engine: EngineOfNight) -> Sequence[str]:
    tallies = engine.tallies
    rate = tallies.steps / engine.cpu_seconds if engine.cpu_seconds else 0.0
    canaries = [canary.result for canary in night.canaries if canary.engine == engine.engine]
    counts = (str(tallies.runs), str(tallies.steps), f"{rate:.0f}", str(tallies.failed_runs))
    reached = sum(tallies.probes[name] > 0 for name in engine.wanted)
    probes = f"{reached} of {len(engine.wanted)}" if engine.wanted else "has none"
    return engine.engine, engine.version, *counts, probes, ", ".join(canaries)


# --- JUnit


def junit(night: Night, details: Mapping[str, str]) -> str:
    """A test case for each finding (with its `details` by folder), canary and engine; an excused finding is skipped."""
    suites = ElementTree.Element("testsuites", name=f"swarden nightly {night.name}")
    for engine in night.engines:
        suite = ElementTree.SubElement(suites, "testsuite", name=engine.engine, time=f"{engine.seconds:.3f}")
        for finding in _sorted(finding for finding in night.findings if finding.sighting.engine == engine.engine):
            case = _case(suite, finding.folder, finding.fingerprint)
            message = f"{finding.sighting.status.value}: {finding.fingerprint} {finding.sighting.why}".strip()
            if excuse := excuse_of(night, finding):
                _add(case, "skipped", f"{message}; {excuse}")
            elif code_of(finding) is not ExitCode.CLEAN:
                kind = "error" if finding.sighting.status is Status.ERROR else "failure"
                _add(case, kind, message, details.get(finding.folder, ""))
        for canary in (canary for canary in night.canaries if canary.engine == engine.engine and canary.mutant):
            case = _case(suite, "canary", canary.mutant)
            if not canary.law:
                _add(case, "failure" if canary.is_missed else "skipped", canary.result)
        case = _case(suite, "coverage", night.profile)
        for owed in (*engine.owed, *engine.diverged):
            _add(case, "failure", owed)
        if engine.why_not_judged:
            _add(case, "skipped", engine.why_not_judged)
        _count(suite)
    errors = ElementTree.SubElement(suites, "testsuite", name="archive")
    for error in night.errors:
        _add(_case(errors, "archive", error.partition(": ")[0]), "error", error)
    _count(errors)
    ElementTree.indent(suites)
    for element in suites.iter():
        element.attrib = {name: printable(value) for name, value in element.attrib.items()}
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, classname: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=classname, name=name)


def _add(case: ElementTree.Element, kind: str, message: str, text: str = "") -> None:
    ElementTree.SubElement(case, kind, message=message).text = printable(text, keep=LAYOUT)


def _count(suite: ElementTree.Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))


# --- OpenMetrics


def metrics(night: Night) -> str:
    """The figures of a night as OpenMetrics text, each a gauge of the last night."""
    lines: list[str] = []

    def gauge(name: str, help_text: str, values: Iterable[tuple[dict[str, str], float]]) -> None:
        lines.extend((f"# TYPE swarden_night_{name} gauge", f"# HELP swarden_night_{name} {help_text}"))
        for labels, value in values:
            text = ",".join(f'{key}="{_label(label)}"' for key, label in labels.items())
            lines.append(f"swarden_night_{name}{f'{{{text}}}' if text else ''} {value:.15g}")

    engines = [({"engine": engine.engine, "version": engine.version}, engine) for engine in night.engines]
    gauge("exit_code", "Exit code, 0 if clean.", [({}, judgement_of(night).exit_code)])
    gauge("started_seconds", "Start in seconds since 1970.", [({}, int(start_of(night).timestamp()))])
    gauge("runs", "Random runs.", [(labels, engine.tallies.runs) for labels, engine in engines])
    gauge("steps", "Engine steps.", [(labels, engine.tallies.steps) for labels, engine in engines])
    gauge("failed_runs", "Failed runs.", [(labels, engine.tallies.failed_runs) for labels, engine in engines])
    gauge("cpu_seconds", "CPU seconds of the workers.", [(labels, engine.cpu_seconds) for labels, engine in engines])
    gauge("owed", "Reasons to be red without a finding.", [(labels, len(engine.owed)) for labels, engine in engines])
    gauge(
        "canary_found",
        "1 if the planted bug was found.",
        [({"engine": bug.engine, "mutant": bug.mutant}, bool(bug.law)) for bug in night.canaries if bug.mutant],
    )
    counts = Counter(
        (finding.sighting.engine, finding.sighting.status, finding.is_quarantined(night.name))
        for finding in night.findings
    )
    findings = [
        ({"engine": name, "status": status.value, "quarantined": str(muted).lower()}, counts[name, status, muted])
        for name, status, muted in product([engine.engine for engine in night.engines], URGENCY, (False, True))
    ]
    gauge("findings", "Findings by status.", findings)
    return "\n".join([*lines, "# EOF", ""])


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
