"""A small valid archive, and copies of it with hostile files."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive, Sighting, Status
from swarden.harness.nightly.shards import ShardResult
from swarden.harness.search.corpus import RareRun
from swarden.harness.search.corpus import write as write_corpus
from swarden.harness.search.mutes import Mute
from tests.harness.nightly.some_nights import DOUBLE_FREE, FAILED, LEAK, LOG, Table, night_of, shard_result, table
from tests.hostile.mutations import damaged, files_of, mutated

OTHER = "unit_has_one_owner/host page/leaked"
SHARDS = 2  # of the night that has died
KINDS = ("night.json", "shards/*.json", "finding.json", "quarantine.json", "seen/*.json", "*.oplog", "findings/*/*.txt")
PLACE = b"/dev/zero"  # in hostile texts; replaced by a path that a test may write to


class Killed(BaseException):
    """The coordinator dies."""


class Valid(NamedTuple):
    """The files of a valid archive by their paths in it, and the night in it that has not ended."""

    files: Mapping[str, bytes]
    dead_night: str


class Hostile(NamedTuple):
    """A change of one file: its content, None if a folder has its place; it is absent in `without`."""

    changed: Mapping[str, bytes | None]
    without: frozenset[str]


def rare_shard(*_: object) -> ShardResult:
    """A shard with a failure that is new, one that is known, and a run for the corpus."""
    done = shard_result(LEAK, DOUBLE_FREE)
    return done._replace(result=replace(done.result, rare=[RareRun(LOG, frozenset({1, 2}), 5)]))


def dying(shards: int) -> Table:
    """Answers until so many shards have ended."""
    left = iter(range(shards))

    def run_shard(*_: object) -> ShardResult:
        if next(left, None) is None:
            raise Killed
        return rare_shard()

    return table(run_shard, replay_log=FAILED)


def valid_archive(root: Path) -> Valid:
    """Two nights, one that has died, a finding in quarantine, an import, and a corpus."""
    archive = Archive(root)
    for answers in (table(lambda *_: shard_result(LEAK)), table(rare_shard, replay_log=FAILED)):
        last = night_of(root, answers)
    archive.finding(OWN, LEAK).put_in_quarantine(Mute(reason="known upstream", until=date(2099, 12, 31)))
    other = archive.finding(OWN, OTHER)
    LOG.as_regression(OTHER).save(other.folder / "other.oplog")
    for night in (last.name, f"{last.name}-import"):
        other.add(Sighting(night=night, engine=OWN, status=Status.NEW, log="other.oplog", fingerprints=[OTHER]))
    write_corpus(archive.corpus_of(OWN), [LOG], replaced=())
    (root / "kill-matrix.md").write_text("a_law  ..#..")
    try:
        night_of(root, dying(SHARDS))
    except Killed:
        [dead] = [night.name for night in archive.nights([]) if night.exit_code is None]
    return Valid({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}, dead)


def hostile(files: Mapping[str, bytes]) -> st.SearchStrategy[Hostile]:
    """Up to three files, or all of a kind, are hostile, damaged, absent, empty, a folder, or as another file."""
    kinds: dict[str, list[str]] = {}  # so that a kind with many files has no more changes than another
    for name in sorted(files):
        state = "of a dead night" if b'"exit_code": null' in files[name] else ""
        for kind in (file_kind for file_kind in KINDS if Path(name).match(file_kind)):
            kinds.setdefault(f"{kind} {state}", []).append(name)

    @st.composite
    def drawn(draw: DrawFn) -> Hostile:
        changed: dict[str, bytes | None] = {}
        without = set()
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(list(kinds.values())))
            names = kind if draw(st.integers(0, 3)) == 3 else [draw(st.sampled_from(kind))]
            match draw(st.sampled_from(("content",) * 8 + ("absent", "empty", "folder", "other"))):
                case "absent":
                    without.update(names)
                case "empty":
                    changed |= dict.fromkeys(names, b"")
                case "folder":
                    changed |= dict.fromkeys(names)
                case "other":
                    changed |= dict.fromkeys(names, files[draw(st.sampled_from(sorted(files)))])
                case _:
                    changed |= {name: draw(_changed(name, files[name])) for name in names}
        return Hostile(changed, frozenset(without))

    return drawn()


def _changed(name: str, content: bytes) -> st.SearchStrategy[bytes]:
    if name.endswith(".json"):
        return files_of(mutated(json.loads(content)))
    if name.endswith(".oplog"):
        lines = content.splitlines()
        return st.sampled_from(range(len(lines))).flatmap(
            lambda n: files_of(mutated(json.loads(lines[n]))).map(
                lambda line: b"\n".join([*lines[:n], line, *lines[n + 1 :], b""])
            )
        )
    return damaged(content)


def write_archive(root: Path, files: Mapping[str, bytes], change: Hostile, place: Path) -> None:
    """Write the archive with the change to a folder that is empty then; `place` stands in hostile texts."""
    shutil.rmtree(root, ignore_errors=True)
    for name, content in {**files, **change.changed}.items():
        path = root / name
        if name in change.without:
            continue
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.replace(PLACE, bytes(place)))
