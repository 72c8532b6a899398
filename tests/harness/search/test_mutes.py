"""The file of known bugs and findings that are put aside until a date."""

from datetime import date

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.search.mutes import Mute, add_mute, mutes_of
from tests.harness.some_commands import swarden

NAMES = ["a-bug", "law/subject/code", 'a "name" \\ with ] and ü']


def test_mutes_are_added_behind_the_text_of_the_file(tmp_path):
    path = tmp_path / "mutes.toml"
    path.write_text("# our mutes")
    mutes = {name: Mute(name=name, until=date(2026, 12, 31), reason='issue "5"') for name in NAMES}
    for mute in mutes.values():
        add_mute(path, mute)

    assert mutes_of(path) == mutes
    assert path.read_text().startswith("# our mutes\n")


def test_mute_ends_on_its_date():
    mute = Mute(name="a-bug", until=date(2026, 12, 31), reason="issue 5")

    assert mute.is_active(date(2026, 12, 30))
    assert not mute.is_active(date(2026, 12, 31))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("[a", "not TOML", id="not-toml"),
        pytest.param("a = 1", "a is no table", id="no-table"),
        pytest.param("[a]\nreason = 'x'", "a: until is missing", id="without-date"),
        pytest.param("[a]\nuntil = 2026-12-31\nreason = 1", "a: reason is 1, want str", id="wrong-type"),
        pytest.param("[a]\nuntil = 2026-12-31\nreason = 'x'\nby = 'me'", "a: unknown argument by", id="unknown-key"),
    ],
)
def test_file_that_is_not_valid_is_named_with_the_entry_and_stays(tmp_path, content, expected):
    path = tmp_path / "mutes.toml"
    path.write_text(content)

    with pytest.raises(UsageError, match=f"{path}: {expected}"):
        add_mute(path, Mute(name="a-bug", until=date(2026, 12, 31), reason="issue 5"))
    assert path.read_text() == content


def test_command_adds_a_mute_once(tmp_path):
    line = ["mute", "a-bug", "--until", "2026-12-31", "--reason", "issue 5"]
    added, again = swarden(*line, cwd=tmp_path), swarden(*line, cwd=tmp_path)

    assert (added.returncode, added.stdout) == (0, "swarden-mutes.toml: a-bug until 2026-12-31: issue 5\n")
    assert again.returncode == 2
    assert "has a-bug until 2026-12-31: issue 5; change that entry" in again.stderr
