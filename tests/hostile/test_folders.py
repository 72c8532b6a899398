"""Special files, links and holes in an archive are refused; nothing blocks, and nothing outside is written."""

import os
import shutil
import socket
from collections.abc import Callable
from contextlib import chdir, suppress
from datetime import date
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from swarden.harness import cli
from swarden.harness.commands.archive import archive as archive_command
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Submit
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive, EngineOfNight, Night, Sighting, Status
from swarden.harness.nightly.journal import Journal, ShardFile
from swarden.harness.nightly.night import NIGHT_FILE, resumed
from swarden.harness.nightly.night_records import ShardRecord
from swarden.harness.nightly.page import page_of
from swarden.harness.search.archive_files import save
from swarden.harness.search.corpus import digest_of, logs_of, write
from swarden.harness.search.findings import write as write_log
from swarden.harness.search.mutes import Mute
from swarden.harness.search.result import Tallies
from tests.hostile.bounded import bounded, cases

FORK = get_context("fork")
MAX_SECONDS = 60  # of wall clock: a read that blocks uses no CPU
NIGHT = "2026-11-24-01-bbbb"
LOG = OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit()])
FINDING = "unit_has_one_owner/full page/leaked"


def fill(root: Path) -> None:
    """Write an archive with one finding, a night that has not ended, and a corpus."""
    archive = Archive(root)
    found = archive.finding(OWN, FINDING)
    path = write_log(LOG, FINDING, found.folder)
    path.with_suffix(".txt").write_text("a story")
    found.put_in_quarantine(Mute(reason="known", until=date(2026, 12, 31)))
    found.add(Sighting(night=NIGHT, engine=OWN, status=Status.NEW, log=path.name))
    engines = [EngineOfNight(engine=OWN, version="", source_hash="")]
    night = Night(name=NIGHT, command="", swarden="", seed=1, profile="smoke", started="", engines=engines)
    save(archive.nights_folder / NIGHT / NIGHT_FILE, night, root)
    shard = ShardRecord(engine=OWN, ordinal=0, first_batch=0, batches=1, tallies=Tallies())
    Journal(archive.nights_folder / NIGHT / "shards").add(ShardFile(record=shard))
    write(archive.corpus_of(OWN), [LOG], replaced=())
    (root / "kill-matrix.md").write_text("a matrix")


def paths_in(root: Path) -> list[Path]:
    """The files and folders of an archive, by their names in it."""
    return sorted(path.relative_to(root) for path in root.rglob("*"))


def as_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, chdir(path.parent):  # the path of a socket has at most 108 bytes
        server.bind(path.name[:100])


def as_hole(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 29)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "fifo": lambda path, _: os.mkfifo(path),
    "socket": as_socket,
    "folder": lambda path, _: path.mkdir(),
    "hole": as_hole,
    "link-to-itself": lambda path, _: path.symlink_to(path.name),
    "link-to-nothing": lambda path, other: path.symlink_to(other / "new"),
    "link-to-fifo": lambda path, other: path.symlink_to(other / "fifo"),
    "link-to-hole": lambda path, other: path.symlink_to(other / "hole"),
    "link-to-the-same-outside": lambda path, other: path.symlink_to(other / "same" / path.name),
    "link-to-folder": lambda path, other: path.symlink_to(other / "archive"),
}


def replace(root: Path, name: Path, kind: str, outside: Path) -> None:
    """Put a special file in the place of a file or folder of an archive; the original is outside then."""
    path = root / name
    with suppress(FileNotFoundError, NotADirectoryError):
        shutil.rmtree(outside / "same", ignore_errors=True)
        (outside / "same").mkdir()
        path.rename(outside / "same" / path.name)
        KINDS[kind](path, outside)


def state_of(folder: Path) -> list[tuple[str, int, int]]:
    """The files below a folder, with their sizes and the times of their last change."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]


# --- what reads and writes an archive


COMMANDS = (
    ["verify"],
    ["list", "--json"],
    ["show", FINDING],
    ["quarantine", FINDING, "--reason", "x", "--until", "2027-01-01"],
)


def verify(root: Path) -> None:
    for words in COMMANDS:
        command = partial(archive_command, [*words, "--archive", str(root)], standalone_mode=False)
        assert cli.run(command) in (ExitCode.CLEAN, ExitCode.MISUSE), words


def report(root: Path) -> None:
    page_of(root, lambda _: {}, lambda *_: None)


def night(root: Path) -> None:
    """The reads and writes of a night that goes on."""
    errors: list[str] = []
    for found in Archive(root).findings(errors):
        found.add(Sighting(night="2026-11-25-01-aaaa", engine=OWN, status=Status.RECURRING))
        write_log(LOG, "another", found.folder, found.root)
    journal = Journal(resumed(root / "nights" / NIGHT)[0].nights_folder / NIGHT / "shards")
    assert len(list(journal.shards(errors))) <= 1
    journal.clear()


def corpus(root: Path) -> None:
    folder = Archive(root).corpus_of(OWN)
    digest_of(folder)
    logs_of(folder, OWN)
    write(folder, [OpLog(LOG.header, [Submit(), Submit()])], replaced=())


USES = (verify, report, night, corpus)


@cases(40)
@given(
    data=st.data(), use=st.sampled_from(USES), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2)
)
def test_archive_with_special_files_is_used_or_refused(tmp_path_factory, data, use, kinds):
    folder = tmp_path_factory.mktemp("case")
    root, outside = folder / "archive", folder / "outside"
    fill(root)
    outside.mkdir()
    os.mkfifo(outside / "fifo")
    as_hole(outside / "hole", outside)
    fill(outside / "archive")
    for kind in kinds:
        replace(root, data.draw(st.sampled_from(paths_in(root))), kind, outside)
    before = state_of(outside)

    assert answer_of(use, root) == ""
    assert state_of(outside) == before
    shutil.rmtree(folder)


def answer_of(use: Callable[[Path], None], root: Path) -> str:
    """Use an archive in a process of its own; "" if that ended well within the bounds."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_use, args=(use, root, sender))
    process.start()
    sender.close()
    try:
        return str(receiver.recv()) if receiver.poll(MAX_SECONDS) else "blocked"
    finally:
        process.kill()
        process.join()


def _use(use: Callable[[Path], None], root: Path, sender: Connection) -> None:
    answer = "raised"
    try:
        with bounded(UsageError):
            use(root)
        answer = ""
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
        raise
    finally:
        sender.send(answer)
