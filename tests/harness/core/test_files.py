"""Reads and writes of files that are links, FIFOs, sockets, folders, or too large."""

import io
import os
import re
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarden.harness.core import files
from swarden.harness.core.files import opened, read_whole, write_whole


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)


@pytest.fixture
def outside(tmp_path_factory):
    """A folder with a file that nothing may read or write."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_bytes(b"secret")
    return folder


def test_file_of_just_the_limit_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"1234")

    assert read_whole(tmp_path / "a", most=4) == b"1234"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_whole(tmp_path / "a", most=3)


def test_named_pipe_is_read_to_its_end(fifo):
    with ThreadPoolExecutor(1) as other:
        other.submit(fifo.write_bytes, b"x" * 300_000)

        assert read_whole(fifo, most=300_000) == b"x" * 300_000


def test_named_pipe_without_an_end_is_read_up_to_the_limit(fifo):
    with ThreadPoolExecutor(1) as other:
        writing = other.submit(fifo.write_bytes, b"x" * 300_000)

        with pytest.raises(OSError, match="larger than 9 bytes"):
            read_whole(fifo, most=9)

        assert isinstance(writing.exception(), BrokenPipeError)


def test_process_substitution_is_read():
    reader, writer = os.pipe()
    os.write(writer, b"content")
    os.close(writer)

    assert read_whole(Path(f"/dev/fd/{reader}"), most=9) == b"content"
    os.close(reader)


def test_dash_is_standard_input(fifo, monkeypatch):
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(os, "dup", {0: reader}.get)
    fifo.write_bytes(b"content")

    assert read_whole(files.STANDARD_INPUT, most=9) == b"content"


@pytest.mark.usefixtures("impatient")
def test_reader_of_a_silent_pipe_gives_up(fifo):
    with pytest.raises(TimeoutError, match=r"silent for 0\.1 s"):
        read_whole(fifo, most=9)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_found_file_that_is_not_regular_is_refused(tmp_path, make):
    make(tmp_path / "a")

    with pytest.raises(OSError, match=r"is no regular file|Is a directory"):
        read_whole(tmp_path / "a", most=9, inside=tmp_path)


def test_found_link_is_read_only_inside_the_folder(tmp_path, outside):
    (tmp_path / "own").write_bytes(b"own")
    (tmp_path / "folder").symlink_to(outside)
    for name, target in (("in", "own"), ("out", outside / "secret"), ("up", f"../{outside.name}/secret")):
        (tmp_path / name).symlink_to(target)

    assert read_whole(tmp_path / "in", most=9, inside=tmp_path) == b"own"
    for name in ("out", "up", "folder/secret"):
        with pytest.raises(OSError, match=re.escape(f"leads to {outside / 'secret'}, outside of {tmp_path}")):
            read_whole(tmp_path / name, most=9, inside=tmp_path)


def test_named_pipe_is_written_and_not_replaced(tmp_path, fifo):
    (tmp_path / "link").symlink_to(fifo)
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(fifo.read_bytes)
        write_whole(tmp_path / "link", b"x" * 300_000)

        assert reading.result() == b"x" * 300_000
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


@pytest.mark.usefixtures("impatient")
def test_named_pipe_without_a_reader_is_given_up(fifo):
    with pytest.raises(TimeoutError, match=r"had no reader for 0\.1 s"):
        write_whole(fifo, b"content")


@pytest.mark.usefixtures("impatient")
def test_writer_to_a_reader_that_has_stopped_gives_up(fifo):
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    with opened(fifo, "wb") as stream, pytest.raises(TimeoutError, match=r"silent for 0\.1 s"):
        stream.write(b"x" * 300_000)
    os.close(reader)


def test_socket_is_not_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a"))

        with pytest.raises(OSError, match="No such device"):
            write_whole(tmp_path / "a", b"content")
    assert stat.S_ISSOCK((tmp_path / "a").stat().st_mode)


def test_full_disk_is_said_with_the_file():
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        write_whole(Path("/dev/full"), b"x")


@pytest.mark.parametrize("name", ["", "folder"])
def test_folder_as_target_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()

    with pytest.raises(IsADirectoryError):
        write_whole(Path(name), b"content")


def test_link_stays_a_link_to_the_written_file(tmp_path):
    (tmp_path / "link").symlink_to("later")
    write_whole(tmp_path / "link", b"content")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "later").read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["later", "link"]


@pytest.mark.parametrize("name", ["file", "folder/secret", "folder/new/file", "dangling"])
def test_nothing_is_written_outside_of_the_folder(tmp_path, outside, name):
    (tmp_path / "file").symlink_to(outside / "secret")
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "dangling").symlink_to(outside / "new")
    for write in (write_whole, lambda path, _, inside: opened(path, "ab", inside=inside)):
        with pytest.raises(OSError, match="outside of"):
            write(tmp_path / name, b"content", inside=tmp_path)

    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_lines_are_read_of_a_pipe(fifo):
    with ThreadPoolExecutor(1) as other:
        other.submit(fifo.write_bytes, b"a\nb\n")
        with io.BufferedReader(opened(fifo)) as reader:
            assert list(reader) == [b"a\n", b"b\n"]
