"""The page of a gate: the new failures of a change, each with the changed lines that it touches and its story."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from swarden.harness.commands.release_day import compared, has_unknown_owner, is_leak, lines_of
from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.origins import places_in
from swarden.harness.core.printable import printable
from swarden.harness.kit.reads import Comparison
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.nightly.reports import plain, table
from swarden.harness.report.story import StoryPart
from swarden.harness.report.wording import counted
from swarden.harness.search.gate import Gate, Judged
from swarden.harness.search.mutes import Mute, mute_of
from swarden.harness.search.reach import Reach
from swarden.harness.search.verification import known_lines

MOST_LINES = 8  # of the change, for one failure
FAILURE = ("failure of the head", "op-log", "on the base")  # the heads of a table
IN_SHORT = (StoryPart.CLAIM, StoryPart.EVIDENCE, StoryPart.COMMAND)


class GatePage:
    """The verdict of a gate.  `mutes` has what is put aside by the name of the failure."""

    def __init__(
        self,
        target: ReleasedTarget[Any],
        gate: Gate,
        why_broken: Sequence[str],
        mutes: Mapping[str, Mute],
    ) -> None:
        self._target, self._gate, self._why_broken, self._mutes = target, gate, why_broken, mutes
        failed = [one for one in gate.judged.values() if one.is_new or not one.finding.cause.bugs]
        self._failed = sorted(failed, key=lambda one: one.rank)

    @cached_property
    def new(self) -> Sequence[Judged]:
        return [one for one in self._failed if one.is_new and not self._mute_of(one)]

    @property
    def reach(self) -> Reach:
        result = self._gate.head.result
        return Reach(self._gate.plan.change, result.coverage, result.refused)

    @cached_property
    def unanswered(self) -> Sequence[Judged]:
        """The failures of which nothing says whether they are new."""
        return [one for one in self._failed if not one.is_new and not one.is_old]

    @cached_property
    def code(self) -> ExitCode:
        doubtful = [one for one in self.new if self._is_doubtful(one)]
        codes = [ExitCode.MISUSE] * bool(self._why_broken) + [ExitCode.INTERRUPTED] * self._gate.head.is_interrupted
        has_proof = bool(self._gate.head.result.tallies.runs)
        codes += [ExitCode.RED] * bool(doubtful or self.unanswered or not has_proof)
        return worst([*codes, ExitCode.VIOLATED] if len(self.new) > len(doubtful) else codes)

    def lines(self) -> Iterator[str]:
        """The page as Markdown."""
        yield f"# {self._target.name}: head beside base"
        yield from ("", *(f"{plain(line)}  " for line in self._verdict()))
        for one in self.new:
            yield from ("", f"## New: {plain(one.name)}", "", *self._touched_lines(one))
            yield from ("", "```", *(str(line).replace("```", "'''") for line in one.finding.story), "```")
        for title, rows in self._tables().items():
            yield from ("", f"## {title}", "", *rows)
        if self._why_broken or any(is_leak(one.finding.fingerprint) for one in self.new):
            yield from ("", "## What the adapter reads", "", "```", *self._adapter_lines(), "```")

    def short_lines(self) -> Iterator[str]:
        """The page for a terminal: without the histories of the stories."""
        yield from self._verdict()
        for one in self.new:
            yield from ("", f"new: {one.name}", *self._touched_lines(one))
            yield from (str(line) for line in one.finding.story if line.part in IN_SHORT)

    def _verdict(self) -> Iterator[str]:
        result = self._gate.head.result
        tallies, old = result.tallies, [one for one in self._failed if one.is_old]
        yield self.reach.summary
        if self._gate.head.is_interrupted:
            yield "interrupted: what is known so far"
        yield from (f"broken: {printable(why)}" for why in self._why_broken)
        yield (
            f"{counted(len(self.new), 'new failure')}; {counted(len(old), 'failure')} of the base, too; "
            f"{counted(tallies.known.total(), 'run')} failed by known bugs"
        )
        made = f"{counted(tallies.runs, 'run')} and {counted(tallies.steps, 'step')} of the head"
        yield f"{made} in {result.seconds:.0f} s"

    def _tables(self) -> Mapping[str, Sequence[str]]:
        aside = [one for one in self._failed if one.is_new and self._mute_of(one)]
        muted = [(f"{one.finding.name} {self._mute_of(one)}", str(one.finding.path)) for one in aside]
        known = known_lines(self._gate.head.result.tallies.known, self._target)
        sections = {
            "Changed lines that did not run": [f"- {plain(line)}" for line in self.reach.details],
            "Broken": [f"- {plain(why)}" for why in self._why_broken],
            "Not judged by the base": table(FAILURE, map(_row, self.unanswered)),
            "Put aside": table(("put aside", "op-log"), muted),
            "Failing on the base, too": table(FAILURE, [_row(one) for one in self._failed if one.is_old]),
            "Known bugs": [f"- {plain(line)}" for line in known],
        }
        return {title: rows for title, rows in sections.items() if rows not in ([], ["None."])}

    def _adapter_lines(self) -> list[str]:
        try:
            return [*lines_of(self._target, self._comparison)]
        except UsageError as error:  # a file that is not valid Python
            return [str(error)]

    def _touched_lines(self, one: Judged) -> list[str]:
        """The changed lines that a story touches, as a list of Markdown."""
        found, how = touched(self._gate.plan.change, one)
        more = [f"- and {len(found) - MOST_LINES} more"] if len(found) > MOST_LINES else []
        return [how, *(f"- `{str(line).replace('`', chr(39))}`" for line in found[:MOST_LINES]), *more]

    def _mute_of(self, one: Judged) -> Mute | None:
        return mute_of(self._mutes, one.finding.name, one.finding.fingerprint)

    def _is_doubtful(self, one: Judged) -> bool:
        """Whether a new failure does not fail each time, or can come from an owner that the adapter does not know."""
        name = one.finding.fingerprint
        return bool(one.finding.why_flaky) or (
            is_leak(name) and has_unknown_owner(name, self._target, self._comparison)
        )

    @cached_property
    def _comparison(self) -> Comparison:
        return compared(self._target, self._gate.base.partition("==")[2])


def touched(change: Sequence[ChangedLine], one: Judged) -> tuple[Sequence[ChangedLine], str]:
    """The changed lines in the functions of a failure's story, else those that ran, and a sentence about them.

    The line of the story itself comes first, then the functions that the story names last; of lines that ran, those in
    files of the story come first.
    """
    places = [place for line in one.finding.story for place in places_in(line.text)]
    of_functions: dict[ChangedLine, tuple[bool, int]] = {}
    of_files: set[ChangedLine] = set()
    for line in change:
        in_file = [(index, place) for index, place in enumerate(places) if line.path.endswith(f"/{place.path}")]
        name = line.function.replace(":", ".").rpartition(".")[2]
        of_files.update([line] if in_file else [])
        if named := [index for index, place in in_file if place.function == name]:
            of_functions[line] = (all(place.line != line.number for _, place in in_file), -max(named))
    if of_functions:
        return sorted(of_functions, key=of_functions.__getitem__), "Changed lines in the functions of its story:"
    if one.ran:
        ran = sorted([change[ordinal] for ordinal in sorted(one.ran)], key=lambda line: line not in of_files)
        return ran, "No changed line is in a function of its story; these ran in its op-log:"
    return [], "Its story touches no changed line."


def _row(one: Judged) -> tuple[str, str, str]:
    return one.name, str(one.finding.path or "in memory only"), one.end
