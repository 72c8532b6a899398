"""The page of a gate: the new failures of a change, each with the changed lines that it touches and its story."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.origins import places_in
from swarden.harness.core.printable import printable
from swarden.harness.core.target import Target
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.releases.comparison import compared, is_leak, lines_of, may_have_new_owner
from swarden.harness.releases.reads import Comparison
from swarden.harness.report.markdown import plain, table
from swarden.harness.report.story import StoryPart
from swarden.harness.report.vulnerability import WARNING, may_be_vulnerability
from swarden.harness.report.wording import counted
from swarden.harness.search.gate import Gate, Judged
from swarden.harness.search.judge import FAILS, PASSES, Rule, end_of, judge, worker_alone
from swarden.harness.search.mutes import Mute, mute_of
from swarden.harness.search.reach import Reach
from swarden.harness.search.verification import known_lines

MOST_LINES = 8  # of the change, for one failure
MOST_ANNOTATIONS = 10  # GitHub shows so many of each kind for a step
FAILURE = ("failure of the head", "op-log", "on the base")  # the heads of a table
IN_SHORT = (StoryPart.CLAIM, StoryPart.EVIDENCE, StoryPart.COMMAND)
SEE_PAGE = "The whole story is on the page of the job, with the op-log."
NEW_OWNER = "The owner of this unit can be new to the adapter; see below what it reads."


class KnownLogs(NamedTuple):
    """How known op-logs end on the base and on the head: FAILS, PASSES, or why they cannot be run."""

    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}

    def changed(self, before: str, after: str) -> list[str]:
        """The logs that end so on both sides; a log that fails otherwise fails."""
        ends = ((log, self.before.get(log, ""), end) for log, end in self.after.items())
        return [log for log, earlier, end in ends if earlier.startswith(before) and end.startswith(after)]


def logs_of_bugs(target: Target) -> dict[str, Path]:
    """The op-logs of the known bugs of a target, by name."""
    return {path.name: path for bug in target.known_bugs().values() for path in bug.oplogs}


def ends_on(engine: str, logs: Mapping[str, Path]) -> Mapping[str, str]:
    """How each of these logs ends on a release, in one process."""
    with worker_alone() as group:
        return {label: end_of(judge(group, path, engine, Rule(needs_fixes=False))) for label, path in logs.items()}


class GatePage:
    """The verdict of a gate.  `mutes` are the muted failures by name, `logs` the known op-logs of a release."""

    def __init__(
        self,
        target: ReleasedTarget[Any],
        gate: Gate,
        why_broken: Sequence[str],
        mutes: Mapping[str, Mute] = {},
        logs: KnownLogs | None = None,
    ) -> None:
        self._target, self._gate, self._why_broken, self._mutes, self._logs = target, gate, why_broken, mutes, logs
        failed = [judged for judged in gate.judged.values() if judged.is_new or not judged.finding.cause.bugs]
        self._failed = sorted(failed, key=_order)

    @cached_property
    def new(self) -> Sequence[Judged]:
        return [judged for judged in self._failed if judged.is_new and not self._mute_of(judged)]

    @property
    def reach(self) -> Reach:
        result = self._gate.head.result
        return Reach(self._gate.plan.change, result.coverage, result.refused)

    @cached_property
    def unanswered(self) -> Sequence[Judged]:
        """The failures of which nothing says whether they are new."""
        return [judged for judged in self._failed if not judged.is_new and not judged.is_old]

    @cached_property
    def code(self) -> ExitCode:
        doubtful = [judged for judged in self.new if self._is_doubtful(judged)]
        codes = {
            ExitCode.MISUSE: bool(self._why_broken),
            ExitCode.INTERRUPTED: self._gate.head.is_interrupted,
            ExitCode.RED: bool(doubtful or self.unanswered or not self._gate.head.result.tallies.runs),
            ExitCode.VIOLATED: len(self.new) > len(doubtful) or bool(self._logs and self._logs.changed(PASSES, FAILS)),
        }
        return worst(code for code, is_given in codes.items() if is_given)

    def lines(self) -> Iterator[str]:
        """The page as Markdown."""
        yield f"# {self._gate.plan.engine} beside {self._gate.base}"
        yield from ("", *(f"{plain(line)}  " for line in self._verdict()))
        for judged in self.new:
            touch = touched(self._gate.plan.change, judged)
            lines = [f"- `{line.replace('`', chr(39))}`" for line in touch.texts]
            yield from ("", f"## New: {plain(judged.name)}", "")
            for note in self._notes(judged):
                yield from (note, "")
            yield from (touch.how, *lines, "", "```")
            yield from (*(str(line).replace("```", "'''") for line in judged.finding.story), "```")
        for title, rows in self._tables().items():
            yield from ("", f"## {title}", "", *rows)
        if self._why_broken or self._logs or any(is_leak(judged.finding.fingerprint) for judged in self.new):
            yield from ("", "## What the adapter reads", "", "```", *self._adapter_lines(), "```")

    def short_lines(self) -> Iterator[str]:
        """The page for a terminal: without the histories, and one story for the failures that touch the same lines."""
        yield from self._verdict()
        shown: list[Touched] = []
        for judged in self.new:
            touch = touched(self._gate.plan.change, judged)
            if touch.lines and touch in shown:
                yield f"new, at the same lines: {judged.name}  {judged.finding.path}"
                continue
            shown.append(touch)
            yield from ("", f"new: {judged.name}", *self._notes(judged), touch.how)
            yield from (f"  {text}" for text in touch.texts)
            yield from (str(line) for line in judged.finding.story if line.part in IN_SHORT)

    def annotations(self, sources: str) -> Iterator[str]:
        """Workflow commands of GitHub that show each new failure at the nearest of the changed lines that it touches.

        A failure that may be a vulnerability has none.  `sources` is the folder of the repository that has the package.
        """
        public = [judged for judged in self.new if not _may_be_vulnerability(judged)]
        for judged in public[:MOST_ANNOTATIONS]:
            touch, properties = touched(self._gate.plan.change, judged), {"title": judged.finding.name}
            if touch.lines:
                properties |= {"file": f"{sources}{touch.lines[0].path}", "line": f"{touch.lines[0].number}"}
            texts = [line.text for line in judged.finding.story if line.part in (StoryPart.CLAIM, StoryPart.EVIDENCE)]
            kind = "warning" if self._is_doubtful(judged) else "error"
            yield workflow_command(kind, properties, [*texts, touch.how, *touch.texts, SEE_PAGE])

    def _verdict(self) -> Iterator[str]:
        """The lines of the verdict; a change that was not reached comes first."""
        result = self._gate.head.result
        tallies, old = result.tallies, [judged for judged in self._failed if judged.is_old]
        reach = [self.reach.summary] if tallies.runs and self._logs is None else []
        if not self.reach.is_reached:
            yield from reach
        if self._gate.head.is_interrupted:
            yield "interrupted: what is known so far"
        yield from (f"broken: {printable(why)}" for why in self._why_broken)
        yield (
            f"{counted(len(self.new), 'new failure')}; {counted(len(old), 'failure')} of the base, too; "
            f"{counted(tallies.known.total(), 'run')} failed by known bugs"
        )
        if self._logs is not None:
            newly = counted(len(self._logs.changed(PASSES, FAILS)), "known op-log")
            yield f"{newly} failing newly, of {len(self._logs.after)}"
        if self.reach.is_reached:
            yield from reach
        laws = counted(sum(1 for count in tallies.evaluated.values() if count), "law")
        made = f"{counted(tallies.runs, 'run')} and {counted(tallies.steps, 'step')} of the head"
        yield f"{laws} in {made} in {result.seconds:.0f} s"

    def _tables(self) -> Mapping[str, Sequence[str]]:
        aside = [judged for judged in self._failed if judged.is_new and self._mute_of(judged)]
        muted = [(f"{judged.finding.name} {self._mute_of(judged)}", str(judged.finding.path)) for judged in aside]
        lists = {
            "Changed lines that did not run": self.reach.details if self._logs is None else [],
            "Broken": self._why_broken,
            "Known bugs": known_lines(self._gate.head.result.tallies.known, self._target),
        }
        if self._logs is not None:
            cannot = [f"{log}: {end}" for log, end in self._logs.after.items() if not end.startswith((PASSES, FAILS))]
            lists |= {
                "Known op-logs that fail newly": self._logs.changed(PASSES, FAILS),
                "Known op-logs that pass newly": self._logs.changed(FAILS, PASSES),
                "Known op-logs that cannot be run": cannot,
            }
        sections = {
            "Not judged by the base": table(FAILURE, map(_row, self.unanswered)),
            "Put aside": table(("put aside", "op-log"), muted),
            "Failing on the base, too": table(FAILURE, [_row(judged) for judged in self._failed if judged.is_old]),
            **{title: [f"- {plain(line)}" for line in lines] for title, lines in lists.items()},
        }
        return {title: rows for title, rows in sections.items() if rows not in ([], ["None."])}

    def _adapter_lines(self) -> list[str]:
        try:
            return [*lines_of(self._target, self._comparison)]
        except UsageError as error:  # a file that is not valid Python
            return [str(error)]

    def _mute_of(self, judged: Judged) -> Mute | None:
        return mute_of(self._mutes, judged.finding.name, judged.finding.fingerprint)

    def _is_doubtful(self, judged: Judged) -> bool:
        """Whether a new failure does not fail each time, or can come from an owner that the adapter does not know."""
        return judged.is_flaky or self._has_new_owner(judged)

    def _notes(self, judged: Judged) -> list[str]:
        notes = {NEW_OWNER: self._has_new_owner(judged), f"{WARNING}.": _may_be_vulnerability(judged)}
        return [note for note, is_true in notes.items() if is_true]

    def _has_new_owner(self, judged: Judged) -> bool:
        return is_leak(judged.finding.fingerprint) and may_have_new_owner(self._target, self._comparison)

    @cached_property
    def _comparison(self) -> Comparison:
        return compared(self._target, self._gate.base.partition("==")[2])


class Touched(NamedTuple):
    """Changed lines that a failure touches, the nearest first, and a sentence about them."""

    lines: Sequence[ChangedLine]
    how: str

    @property
    def texts(self) -> list[str]:
        more = [f"and {len(self.lines) - MOST_LINES} more"] if len(self.lines) > MOST_LINES else []
        return [*map(str, self.lines[:MOST_LINES]), *more]


def touched(change: Sequence[ChangedLine], judged: Judged) -> Touched:
    """The changed lines in the functions of a failure's story, else those that ran.

    The line of the story itself comes first, then the functions that the story names last; of lines that ran, those in
    files of the story come first.
    """
    places = [place for line in judged.finding.story for place in places_in(line.text)]
    of_functions: dict[ChangedLine, tuple[bool, int]] = {}
    of_files: set[ChangedLine] = set()
    for line in change:
        in_file = [(index, place) for index, place in enumerate(places) if line.path.endswith(f"/{place.path}")]
        name = line.function.replace(":", ".").rpartition(".")[2]
        of_files.update([line] if in_file else [])
        if named := [index for index, place in in_file if place.function == name]:
            of_functions[line] = (all(place.line != line.number for _, place in in_file), -max(named))
    if of_functions:
        nearest = sorted(of_functions, key=of_functions.__getitem__)
        return Touched(nearest, "Changed lines in the functions of its story:")
    if judged.ran:
        ran = sorted([change[ordinal] for ordinal in sorted(judged.ran)], key=lambda line: line not in of_files)
        return Touched(ran, "No changed line is in a function of its story; these ran in its op-log:")
    is_known = judged.ran is not None
    return Touched([], f"Its story touches no changed line{'' if is_known else '; which of them ran was not seen'}.")


def workflow_command(kind: str, properties: Mapping[str, str], lines: Sequence[str]) -> str:
    """A command in the output of a job, which GitHub obeys; no text can end it or begin another one."""
    named = ",".join(f"{name}={_escaped(printable(value), ':,')}" for name, value in properties.items())
    text = _escaped("\n".join(map(printable, lines)), "\n")
    return f"::{kind} {named}::{text}"


def _escaped(text: str, special: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%{special}" else char for char in text)


def _may_be_vulnerability(judged: Judged) -> bool:
    """Whether SECURITY.md may cover a failure; a log that is not shrunk can have ops that the failure does not need."""
    finding = judged.finding
    ops = finding.log.ops if finding.engine_steps is not None else ()
    return may_be_vulnerability(finding.fingerprints, ops)


def _order(judged: Judged) -> tuple[int, bool, bool, int]:
    """The sort key: new failures first, then those that fail each time, those without a known bug, and short logs."""
    return judged.rank, judged.is_flaky, bool(judged.finding.cause.bugs), judged.finding.ops


def _row(judged: Judged) -> tuple[str, str, str]:
    return judged.name, str(judged.finding.path or "in memory only"), judged.end
