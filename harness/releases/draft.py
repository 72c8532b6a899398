"""A draft of the file of a known bug: all that is measured of its op-log, with the sentences left open."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.driver import STUCK, Failure
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.files import read_toml
from swarden.harness.core.known_bug import read_bug
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Abort, Drain
from swarden.harness.core.origins import places_in
from swarden.harness.core.process import BOOT_S, Process, ProcessDied, ProcessLimits
from swarden.harness.core.replay import repeat, run_log
from swarden.harness.core.target import prepare
from swarden.harness.releases.bisect import Bisection, Note, VersionRange, bisected
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.heading import configuration_line, ops_line
from swarden.harness.report.known_bug import needs_of
from swarden.harness.report.story import StoryPart, story_lines
from swarden.harness.search.programs import Found
from swarden.harness.search.replaying import law_of

TODO = "TODO"  # the beginning of a sentence that is left open
LARGE_POOLS = {"num_blocks": 4096, "full_pages": 10000, "swa_pages": 8000}  # of a server, by the name of the setting
NO_PROGRESS = {law_of(STUCK), "work_makes_progress"}
MOST_PLACES = 5
MOST_ABORTS = 64


class Measured(NamedTuple):
    """The failure of an op-log on a release, in words and places.

    `large_pools` are the settings with which it fails, too; None if it does not.  `ends_by_abort` is None for a failure
    that is no lack of progress.
    """

    fingerprints: Sequence[str]
    is_error: bool
    configurations: Sequence[str]
    needs: str
    ops: str
    claim: str
    evidence: Sequence[str]
    places: Sequence[Mapping[str, Any]]
    large_pools: Mapping[str, int] | None
    ends_by_abort: bool | None


def draft_of(path: Path, engine: str | None, note: Note) -> str:
    """The file in TOML; raises UsageError if the op-log does not fail on the release that it names."""
    found = bisected(path, engine, VersionRange(None, None, every=True), note)
    release = _failing(found)[-1]
    with Process(limits=ProcessLimits(BOOT_S)) as process:
        try:
            measured = process.call(_measure, Found(path.stem, path, f"{found.engine}=={release}", None))
        except ProcessDied as error:
            raise UsageError(f"{path}: its failure cannot be measured: the process {error.death.how}") from error
    note(f"{release}: {measured.fingerprints[0]} is described as on this release")
    return "".join(_lines(found, release, measured))


def missing_in(path: Path) -> list[str]:
    """What is open in the file of a known bug, by key; raises UsageError for what else is wrong with it."""
    missing = list(_open_keys(read_toml(path), ""))
    if not missing:
        bug = read_bug(path)
        missing += [] if bug.oplogs else [f"{path.with_suffix('.oplog').name}: the op-log is not beside the file"]
        missing += [] if bug.fixes else ["fixes: there is none, so no failure is known by it"]
    return missing


def _failing(found: Bisection) -> list[str]:
    """The versions that fail, oldest first."""
    judged = [version for version in found.versions if version not in found.left_out]
    first, fixed = found.boundaries
    start = judged.index(first) if first is not None else 0
    return judged[start : judged.index(fixed) if fixed is not None else None]


def _measure(found: Found) -> Measured:
    log, target = found.load(), found.target
    prepare(target)
    failure = repeat(log, 1, tracer_of=decision_tracer).failure
    assert failure is not None, "it has failed on this release"
    story = story_lines(log.header, failure)
    shown = [line.text for line in story if line.part in (StoryPart.EVIDENCE, StoryPart.HISTORY)]
    places = list(dict.fromkeys(place for line in reversed(shown) for place in places_in(line)))
    return Measured(
        fingerprints=failure.fingerprints,
        is_error=failure.error is not None and failure.fingerprint != STUCK,
        configurations=[configuration_line(log.header, engine) for engine in range(len(log.header.configs))],
        needs=needs_of(log, target),
        ops=ops_line(failure),
        claim=next(line.text for line in story if line.part is StoryPart.CLAIM),
        evidence=[line.text for line in story if line.part is StoryPart.EVIDENCE],
        places=[
            {"file": f"{target.code.package}/{one.path}", "line": one.line, "name": one.function, "says": TODO}
            for one in places[:MOST_PLACES]
        ],
        large_pools=_large_pools(found, failure),
        ends_by_abort=_ends_by_abort(log, failure),
    )


def _large_pools(found: Found, failure: Failure) -> Mapping[str, int] | None:
    settings = {name: size for name, size in LARGE_POOLS.items() if name in found.target.defaults}
    if not settings:
        return None
    try:
        larger = run_log(found._replace(settings=settings).load()).failure
    except InvalidConfig:
        return None
    return settings if larger is not None and failure.fingerprint in larger.fingerprints else None


def _ends_by_abort(log: OpLog, failure: Failure) -> bool | None:
    """Whether all requests that make no progress can be aborted, and the rest comes to its end."""
    if not NO_PROGRESS & set(map(law_of, failure.fingerprints)):
        return None
    engines = range(len(log.header.configs))
    aborts = [Abort(engine=engine) for engine in engines for _ in range(MOST_ABORTS)]
    drains = [Drain(engine=engine) for engine in engines]
    return run_log(OpLog(log.header, [*log.ops[: failure.op_index], *aborts, *drains])).failure is None


def _lines(found: Bisection, release: str, measured: Measured) -> Iterator[str]:
    first, fixed = _failing(found)[0], found.boundaries.first_fixed
    pools = measured.large_pools
    recovery = {None: TODO, True: "An abort ends it.", False: f"{TODO}: an abort does not end it"}
    healed = f"{TODO}: the engine has ended: restart" if measured.is_error else recovery[measured.ends_by_abort]
    bug: dict[str, Any] = {
        "title": f"{TODO}: the symptom, then a flag",
        "effect": f"{TODO}: what clients notice",
        "cause": f"{TODO}: which function does what",
        "first": first,
        **({"fixed": fixed} if fixed is not None else {}),
        "tried": found.versions[-1],
        "fingerprints": measured.fingerprints,
        "searched": f"{TODO}: date of the search for issues and pull requests",
        "verdict": f"{TODO}: new issue, comment on issue N or pull N, or not worth posting",
        **({"large_pools": pools} if pools is not None else {}),
    }
    document = {
        "client": f"{TODO}: what a client sees, and with which options",
        **({"log": "\n".join((measured.claim, *measured.evidence))} if measured.is_error else {}),
        "environment": f"{TODO}, in the words of a server: {'; '.join(measured.configurations)}",
        "flags": f"{TODO}, of a server with: {measured.needs or 'nothing that not all have'}",
        "steps": [f"{TODO}: {step}" for step in measured.ops.removeprefix("ops: ").split("; ")],
        "expected": f"{TODO}: {measured.claim}",
        "actual": f"{TODO}: {'; '.join(measured.evidence[:2])}",
        "sizes": f"{TODO}: {'the same with' if pools is not None else 'not tried, or not, with'} a large pool",
        "recovery": healed,
        "argument": f"{TODO}: why the engine is at fault, and not its adapter",
        "code_release": release,
        "code": measured.places,
    }
    yield from (f"{key} = {_toml(value)}\n" for key, value in bug.items())
    yield "\n[document]  # leave it out for a bug that is not worth posting\n"
    yield from (f"{key} = {_toml(value)}\n" for key, value in document.items())
    yield f'\n# [[fixes]]\n# releases = ["{first}", "{release}"]\n# [[fixes.hunks]]\n# at, before, after\n'


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(["[\n", *(f"    {_toml(one)},\n" for one in value), "]"])
    return json.dumps(value, ensure_ascii=False)


def _open_keys(value: Any, key: str) -> Iterator[str]:
    """The keys whose text is left open, each with it."""
    if isinstance(value, str) and value.startswith(TODO):
        yield f"{key}{value.removeprefix(TODO)}"
    elif isinstance(value, list | dict):
        for name, one in enumerate(value) if isinstance(value, list) else value.items():
            yield from _open_keys(one, f"{key}.{name}" if key else str(name))
