"""The file of known bugs and findings that are put aside until a date."""

from datetime import date

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.search.mutes import Mute, add_mute, mutes_of
from tests.harness.some_commands import swarden

MUTE = Mute(until=date(2026, 12, 31), reason="issue 5")
NAMES = ["a-bug", "law/subject/code", 'a "name" \\ with ] and ü']


def test_mutes_are_added_behind_the_text_of_the_file(tmp_path):
    path = tmp_path / "mutes.toml"
    path.write_text("# our mutes")
    mutes = dict.fromkeys(NAMES, Mute(until=date(2026, 12, 31), reason='issue "5"'))
    for name, mute in mutes.items():
        add_mute(path, name, mute)

    assert mutes_of(path) == mutes
    assert path.read_text().startswith("# our mutes\n")


def test_mute_ends_on_its_date():
    assert [MUTE.is_active(day) for day in ("2026-12-30", "2026-12-31")] == [True, False]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("[a", "not TOML", id="not-toml"),
        pytest.param("a = 1", "a: until is missing", id="no-table"),
        pytest.param("[a]\nreason = 'x'", "a: until is missing", id="without-date"),
        pytest.param("[a]\nuntil = 2026-12-31\nreason = 1", "a: reason is 1, want str", id="wrong-type"),
        pytest.param("[a]\nuntil = 2026-12-31\nreason = 'x'\nby = 'me'", "a: unknown argument by", id="unknown-key"),
    ],
)
def test_file_that_is_not_valid_is_named_with_the_entry_and_stays(tmp_path, content, expected):
    path = tmp_path / "mutes.toml"
    path.write_text(content)

    with pytest.raises(UsageError, match=f"{path}: {expected}"):
        add_mute(path, "a-bug", MUTE)
    assert path.read_text() == content


def test_command_adds_a_mute_once_and_refuses_a_name_of_nothing(tmp_path):
    terms = ["--until", "2026-12-31", "--reason", "issue 5"]
    added, again, unknown = (swarden("mute", name, *terms, cwd=tmp_path) for name in ("law/x", "law/x", "a-bug"))

    assert (added.returncode, added.stdout) == (0, "swarden-mutes.toml: law/x until 2026-12-31: issue 5\n")
    assert (again.returncode, unknown.returncode) == (2, 2)
    assert "has law/x until 2026-12-31: issue 5; change that entry" in again.stderr
    assert "a-bug: no known bug" in unknown.stderr
