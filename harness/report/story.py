"""The story of a failure for people: claim, evidence, history, equations, and the command that replays it."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.driver import DrainStuck, Failure, Moment
from swarden.harness.core.errors import text_of
from swarden.harness.core.fingerprint import fingerprint
from swarden.harness.core.oplog import Header
from swarden.harness.core.printable import printable
from swarden.harness.report.heading import (
    configuration_line,
    failed_line,
    needs_line,
    opening_lines,
    ops_line,
    request_lines,
)
from swarden.harness.report.history import history_of, nodes_below, parents_of, passed_over, refs_in_message
from swarden.harness.report.wording import conservation_line, evidence_text, subject_text
from swarden.invariants.catalog import ALL
from swarden.invariants.contracts.admission import AdmissionCode
from swarden.invariants.contracts.free_places import FreePlaceCode
from swarden.invariants.events import REQUEST_KIND, TREE_KIND, Owner
from swarden.invariants.laws.lifecycle.progress import ProgressCode
from swarden.invariants.view import NodeView, PoolView
from swarden.invariants.violation import NODE, WHOLES, Ref, Violation, owner_ref, request_ref

MAX_SUBJECTS = 4  # of one invariant; the rest are counted
MAX_INVARIANTS = 3
MAX_HOLDERS = 2  # of units, whose histories show why a request finds too few
MAX_FRAMES = 12  # of an error, the innermost
MAX_EVIDENCE_LEN = 400  # characters of one line
HAS_DIGIT = re.compile(r"\d")
KEPT_WAITING = (AdmissionCode.KEPT_WAITING, FreePlaceCode.PLACE_LEFT_EMPTY)  # the engine's needs are in its branches
REPLAY = "replay: swarden replay "
CLAIMS = {invariant.name: invariant.claim for invariant in ALL.invariants}


class StoryPart(Enum):
    """The kind of a line of a story."""

    VERDICT = "verdict"
    HEADING = "heading"
    CLAIM = "claim"
    EVIDENCE = "evidence"
    HISTORY = "history"
    EQUATION = "equation"
    COMMAND = "command"


class StoryLine(NamedTuple):
    """A line of a story; it may be long, because the layout wraps it."""

    part: StoryPart
    text: str
    indent: int = 0

    def __str__(self) -> str:
        return " " * self.indent + printable(self.text)


class Scene(NamedTuple):
    """The engine that failed: its history, and the state of its pools and its tree."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]
    nodes: Sequence[NodeView] = ()

    def history_of(self, ref: Ref) -> list[StoryLine]:
        below = nodes_below(ref.id, parents_of(self.nodes, self.history)) if ref.kind == NODE else ()
        return [StoryLine(StoryPart.HISTORY, entry, 4) for entry in history_of(ref, self.history, below)]

    def passed_over(self, requests: Sequence[int]) -> Iterator[StoryLine]:
        """The branches by which the last steps passed over these requests."""
        steps, branches = passed_over(requests, self.history)
        if branches:
            times = "the last step" if steps == 1 else f"each of the last {steps} steps"
            yield StoryLine(StoryPart.EVIDENCE, f"the branches by which {times} left out {_named(requests)}:", 2)
        for branch in branches:
            subject = f"{subject_text(request_ref(branch.request_id))}: " if branch.request_id else ""
            yield StoryLine(StoryPart.HISTORY, f"{subject}{branch.condition}  {branch.place}", 4)
            if any(map(HAS_DIGIT.search, (value for _, value in branch.values))):
                yield StoryLine(StoryPart.HISTORY, f"with {', '.join(map(' '.join, branch.values))}", 6)

    def why_idle(self, requests: Sequence[int]) -> Iterator[StoryLine]:
        """Why the last steps passed over these requests, and the histories of these and of the holders of units.

        Holders are owners outside of the tree, then nodes that are locked.
        """
        yield from self.passed_over(requests)
        waiting = [request_ref(request) for request in requests]
        holdings = [holding for pool in self.pools for holding in pool.holdings if holding.units]
        owners = [owner_ref(holding.owner) for holding in holdings if holding.owner.kind != TREE_KIND or holding.locks]
        holders = sorted([ref for ref in owners if ref.id and ref not in waiting], key=lambda ref: ref.kind == NODE)
        for ref in [*waiting, *dict.fromkeys(holders)][: len(waiting[:MAX_SUBJECTS]) + MAX_HOLDERS]:
            if history := self.history_of(ref):
                yield StoryLine(StoryPart.EVIDENCE, f"{subject_text(ref)}:", 2)
                yield from history

    def refs_in_message(self, message: str) -> list[Ref]:
        return refs_in_message(message, [pool.name for pool in self.pools])


def story(violations: Sequence[Violation], history: Sequence[Moment], pools: Sequence[PoolView]) -> str:
    """The violations, with the histories of the subjects that they name and the equations of the pools."""
    return "\n".join(map(str, _violation_lines(violations, Scene(history, pools))))


def story_lines(
    header: Header, failure: Failure, path: Path | None = None, *, is_minimal: bool = False
) -> list[StoryLine]:
    """The whole story of a failure of a log: its engine and configuration, then the failure.

    A violation with the expected fingerprint comes first.  The settings that an `is_minimal` log needs are named.
    """
    lines = failure_lines(failure, path, expected=header.expected)
    refs = [ref for violation in failure.violations for ref in refs_of(violation)]
    if failure.error is not None:
        refs = refs_in_message(text_of(failure.error), ())
    named = {ref.id for ref in refs if ref.kind == REQUEST_KIND}
    heading = [*opening_lines(header, failure.engine), configuration_line(header, failure.engine)]
    heading += filter(None, [needs_line(header) if is_minimal else ""])
    heading += [*request_lines(failure.transition.reference, named), ops_line(failure), failed_line(failure)]
    return [*(StoryLine(StoryPart.HEADING, line) for line in heading), *lines]


def failure_lines(failure: Failure, path: Path | None = None, *, expected: str | None = None) -> list[StoryLine]:
    """The lines about a failure and the engine that failed; violations with the `expected` fingerprint come first."""
    history, after = [moment for moment in failure.history if moment.system == failure.engine], failure.transition.after
    scene = Scene(history, after.pools, after.nodes or ())
    if failure.error is not None:
        lines = list(_error_lines(failure, failure.error, scene))
    else:
        violations = sorted(failure.violations, key=lambda violation: fingerprint(violation) != expected)
        lines = _violation_lines(violations, scene)
    return lines if path is None else [*lines, replay_line(path)]


def replay_line(path: Path) -> StoryLine:
    return StoryLine(StoryPart.COMMAND, f"{REPLAY}{shlex.quote(str(path))}")


def expected_lines(header: Header, path: Path) -> list[StoryLine]:
    """The failure that a log is for, and the command that runs it; a log of a server is not run to be shown."""
    claim, command = claim_of(header.expected or "no failure is recorded"), f"{replay_line(path).text} --url URL"
    return [StoryLine(StoryPart.CLAIM, claim), StoryLine(StoryPart.COMMAND, command)]


def claim_of(fingerprint: str) -> str:
    """A fingerprint with the claim of its law."""
    claim = CLAIMS.get(fingerprint.partition("/")[0])
    return fingerprint if claim is None else f"{fingerprint}: {claim}"


def _violation_lines(violations: Sequence[Violation], scene: Scene) -> list[StoryLine]:
    by_name: dict[str, list[Violation]] = {}
    for violation in violations:
        by_name.setdefault(violation.law, []).append(violation)
    shown, more = list(by_name)[:MAX_INVARIANTS], list(by_name)[MAX_INVARIANTS:]
    lines: list[StoryLine] = []
    shown_before: set[str] = set()  # evidence, and the subjects of the histories
    for name in shown:
        lines.append(StoryLine(StoryPart.CLAIM, f"{name}: {CLAIMS[name]}"))
        for violation in by_name[name][:MAX_SUBJECTS]:
            lines += _evidence_lines(violation, scene, shown_before)
        if (rest := len(by_name[name]) - MAX_SUBJECTS) > 0:
            lines.append(StoryLine(StoryPart.EVIDENCE, f"and {rest} more", 2))
    if more:
        lines.append(StoryLine(StoryPart.CLAIM, f"and {len(more)} more: {', '.join(more)}"))
    return [*lines, *_equation_lines(_pools_of(violations, scene.pools), except_for=lines)]


def refs_of(violation: Violation) -> list[Ref]:
    """The subjects that a violation names, its own subject first, each once."""
    return list(dict.fromkeys([violation.subject, *chain.from_iterable(map(_refs_in, violation.values.values()))]))


def _refs_in(value: object) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, Owner):
        yield owner_ref(value)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from chain.from_iterable(map(_refs_in, value))


def _evidence_lines(violation: Violation, scene: Scene, shown_before: set[str]) -> Iterator[StoryLine]:
    """A violation with the histories of its subject and of the next unit that it names; adds to `shown_before`."""
    subject, place = subject_text(violation.subject), violation.values.get("place")
    evidence = f"{subject}: {evidence_text(violation)}"
    yield StoryLine(StoryPart.EVIDENCE, f"{subject}: as above" if evidence in shown_before else _cut(evidence), 2)
    shown_before.add(evidence)
    if violation.code is ProgressCode.STUCK:
        yield from scene.why_idle([ref.id for ref in refs_of(violation) if ref.kind == REQUEST_KIND])
        return
    if violation.code in KEPT_WAITING:
        yield from scene.passed_over([violation.subject.id])
    named = [ref for ref in refs_of(violation)[1:] if ref.kind not in WHOLES]
    further = [ref for ref in named if ref.pool][:1]
    if not further and not scene.history_of(violation.subject):
        further = [ref for ref in named if scene.history_of(ref)][:1]
    wrong = isinstance(place, Ref) and place.kind not in WHOLES  # the wrong content is in the slot of another subject
    if wrong:
        shown_before.add(subject)
    for ref in further if wrong else (violation.subject, *further):
        history = scene.history_of(ref) if subject_text(ref) not in shown_before else []
        if ref in further and history:
            yield StoryLine(StoryPart.EVIDENCE, f"{subject_text(ref)}:", 2)
        texts = "\n".join(line.text for line in history)
        if texts and texts in shown_before:
            yield StoryLine(StoryPart.HISTORY, "as the history above", 4)
        else:
            yield from history
        shown_before.update((subject_text(ref), texts))


def _error_lines(failure: Failure, error: Exception, scene: Scene) -> Iterator[StoryLine]:
    """An error of the engine and its frames; the histories of what its message names; the pools."""
    first, *rest = text_of(error).splitlines() or [""]
    yield StoryLine(StoryPart.CLAIM, f"engine error: {type(error).__name__}: {_cut(first)}".removesuffix(": "))
    frames = failure.frames
    if len(frames) > MAX_FRAMES:
        yield StoryLine(StoryPart.EVIDENCE, f"… {len(frames) - MAX_FRAMES} outer", 2)
    yield from (StoryLine(StoryPart.EVIDENCE, frame, 2) for frame in frames[-MAX_FRAMES:])
    if rest:  # the story of a strict check, with its own history and equations
        yield from map(_line_of, rest)
        return
    if isinstance(error, DrainStuck):
        yield from scene.why_idle([request.id for request in failure.transition.after.requests or ()])
    for ref in scene.refs_in_message(first)[:MAX_SUBJECTS]:
        yield StoryLine(StoryPart.EVIDENCE, f"{subject_text(ref)}:", 2)
        yield from scene.history_of(ref)
    yield StoryLine(StoryPart.EQUATION, "the pools before the failure:")
    yield from _equation_lines(scene.pools, except_for=())


def _named(requests: Sequence[int]) -> str:
    return " and ".join(subject_text(request_ref(request)) for request in requests[:MAX_SUBJECTS]) or "all requests"


def _line_of(text: str) -> StoryLine:
    """A line of the story that the message of a strict check holds."""
    stripped = text.lstrip(" ")
    return StoryLine(
        StoryPart.COMMAND if stripped.startswith(REPLAY) else StoryPart.EVIDENCE, stripped, len(text) - len(stripped)
    )


def _equation_lines(pools: Iterable[PoolView], *, except_for: Sequence[StoryLine]) -> list[StoryLine]:
    """The conservation equations of the pools, without those that are in `except_for`."""
    shown = {line.text for line in except_for}
    return [StoryLine(StoryPart.EQUATION, terms) for terms in map(conservation_line, pools) if terms not in shown]


def _pools_of(violations: Sequence[Violation], pools: Sequence[PoolView]) -> Sequence[PoolView]:
    """The pools that the evidence names; all pools if it names none."""
    named = {ref.pool for violation in violations for ref in refs_of(violation)}
    named.update(value for violation in violations for value in violation.values.values() if isinstance(value, str))
    return [pool for pool in pools if pool.name in named] or pools


def _cut(text: str) -> str:
    """A text, or its beginning and its length if it is too long."""
    if len(text) <= MAX_EVIDENCE_LEN:
        return text
    return f"{text[:MAX_EVIDENCE_LEN].rpartition(' ')[0]} … ({len(text)} characters)"
