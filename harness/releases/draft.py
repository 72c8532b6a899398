"""A draft of the file of a known bug: the facts are measured by runs of its op-log; the sentences are left open."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarden.harness.core.driver import STUCK, Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_toml
from swarden.harness.core.fingerprint import law_of
from swarden.harness.core.known_bug import read_bug
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Abort, Drain
from swarden.harness.core.origins import places_in
from swarden.harness.core.process import BOOT_S, Process, ProcessDied, ProcessLimits
from swarden.harness.core.replay import repeat, run_log
from swarden.harness.core.target import prepare
from swarden.harness.releases.bisect import Note, VersionRange, bisected
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.heading import configuration_line, ops_line
from swarden.harness.report.known_bug import needs_of
from swarden.harness.report.story import StoryPart, story_lines
from swarden.harness.search.programs import Found

TODO = "TODO"  # the beginning of a text that is left open
NO_PROGRESS = {law_of(STUCK), "work_makes_progress"}
MOST_PLACES, MOST_ABORTS = 5, 64
OPEN = ("title", "effect", "cause", "searched", "verdict")


def draft_of(path: Path, engine: str | None, note: Note) -> str:
    """The file in TOML; raises UsageError if the op-log does not fail on the release that it names."""
    bisection = bisected(path, engine, VersionRange(None, None, every=True), note)
    since, fixed = bisection.boundaries
    judged = [version for version in bisection.versions if version not in bisection.left_out]
    release = judged[judged.index(fixed) - 1] if fixed is not None else judged[-1]
    with Process(limits=ProcessLimits(BOOT_S)) as process:
        try:
            bug, document = process.call(_measured, Found(path.stem, path, f"{bisection.engine}=={release}", None))
        except ProcessDied as error:
            raise UsageError(f"{path}: its process {error.death.how} on {release}; write its file by hand") from error
    span = {"first": since or judged[0], **({"fixed": fixed} if fixed is not None else {}), "tried": judged[-1]}
    facts = _lines(dict.fromkeys(OPEN, TODO) | span | bug)
    return "\n".join([*facts, "", "[document]", *_lines(document | {"code_release": release}), ""])


def missing_in(path: Path) -> list[str]:
    """The keys that are missing or open in the file of a known bug; raises UsageError for a wrong value."""
    if missing := list(_open(read_toml(path), "")):
        return missing
    bug = read_bug(path)
    missing = [] if bug.fixes else ["fixes"]
    return missing if bug.oplogs else [*missing, f"{bug.name}.oplog, beside the file"]


def _measured(source: Found) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts for the file and for its table [document], measured in a process of the release."""
    log, target = source.load(), source.target
    prepare(target)
    failure = repeat(log, 1, tracer_of=decision_tracer).failure
    assert failure is not None, "it has failed on this release"
    story = story_lines(log.header, failure)
    evidence = [line.text for line in story if line.part is StoryPart.EVIDENCE]
    claim = next(line.text for line in story if line.part is StoryPart.CLAIM)
    shown = [line.text for line in story if line.part in (StoryPart.EVIDENCE, StoryPart.HISTORY)]
    places = list(dict.fromkeys(place for text in reversed(shown) for place in places_in(text)))[:MOST_PLACES]
    pools = _large_pools(source, failure)
    settings = "; ".join(configuration_line(log.header, engine) for engine in range(len(log.header.configs)))
    return {"fingerprints": failure.fingerprints, **({"large_pools": pools} if pools else {})}, {
        "environment": f"{TODO}: {settings}",
        "flags": f"{TODO}: {needs_of(log, target)}",
        "steps": [f"{TODO}: {step}" for step in ops_line(failure).removeprefix("ops: ").split("; ")],
        "expected": f"{TODO}: {claim}",
        "actual": f"{TODO}: {'; '.join(evidence[-1:] if failure.error is not None else evidence[:1])}",
        "sizes": f"{TODO}: fails with {', '.join(_lines(pools))}, too" if pools else TODO,
        "recovery": f"{TODO}: {_recovery(log, failure)}".removesuffix(": "),
        "code": [
            {"file": f"{target.code.package}/{place.path}", "line": place.line, "name": place.function, "says": TODO}
            for place in places
        ],
    }


def _large_pools(source: Found, failure: Failure) -> Mapping[str, int]:
    """The sizes of a server with which the op-log fails in the same way; none if it does not."""
    settings = source.target.large_pools
    try:
        larger = run_log(source._replace(settings=settings).load()).failure if settings else None
    except UsageError:  # the engine refuses them
        larger = None
    return settings if larger is not None and failure.fingerprint in larger.fingerprints else {}


def _recovery(log: OpLog, failure: Failure) -> str:
    """Whether an engine without progress comes to rest if all requests are aborted."""
    if not NO_PROGRESS & set(map(law_of, failure.fingerprints)):
        return "the engine has ended: restart" if failure.error is not None else ""
    engines = range(len(log.header.configs))
    ends = [
        *(Abort(engine=engine) for engine in engines for _ in range(MOST_ABORTS)),
        *(Drain(engine=engine) for engine in engines),
    ]
    end = run_log(OpLog(log.header, [*log.ops[: failure.op_index], *ends])).failure
    return "an abort ends it" if end is None else f"after an abort of all requests: {end.fingerprint}"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_lines(value))} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(["[\n", *(f"    {_toml(item)},\n" for item in value), "]"])
    return json.dumps(value, ensure_ascii=False)


def _open(value: Any, key: str) -> Iterator[str]:
    """The keys whose text is open."""
    if isinstance(value, str) and value.startswith(TODO):
        yield key
    elif isinstance(value, list | dict):
        for name, item in enumerate(value) if isinstance(value, list) else value.items():
            yield from _open(item, f"{key}.{name}".removeprefix("."))
