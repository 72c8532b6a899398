"""The files of known bugs: what they must have, and how an error in one is reported."""

import pytest

from docs.make.pages import ENGINES, own_bugs
from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fix_of
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import EMBARGO, known_bugs_in
from swarden.harness.core.registry import target_of

BUGS = [bug for engine in ENGINES for bug in own_bugs(engine)]
LEAST = """
title = "A page is freed twice"
effect = "the server ends"
cause = "The page stays in the list of the request."
first = "0.5.11"
fixed = "0.5.13"
tried = "0.5.23"
fingerprints = ["unit_has_one_owner/swa page/free_in_use"]
searched = "2026-11-23"
verdict = "new issue"
"""
DOCUMENT = """
[document]
environment = "The default."
steps = ["A request is aborted."]
expected = "The server goes on."
actual = "The server ends."
sizes = "Any."
recovery = "A restart."
code_release = "0.5.12"
code = [{ file = "some/module.py", line = 1, name = "function" }]
"""
FIX = """
[[fixes]]
releases = ["0.5.12", "0.5.12.post1"]
hunks = [{ at = "module:function", before = "1", after = "2" }]
"""


def bug_of(folder, text):
    (folder / "some-bug.toml").write_text(text)
    return known_bugs_in(folder)["some-bug"]


@pytest.mark.parametrize(
    ("release", "has_bug", "has_fix"),
    [("0.5.10.post1", False, False), ("0.5.11", True, False), ("0.5.12.post1", True, True), ("0.5.13", False, False)],
)
def test_bug_and_fix_have_their_releases(tmp_path, release, has_bug, has_fix):
    bug = bug_of(tmp_path, LEAST + FIX)

    assert (bug.has(release), bug.patch_for(release) is not None) == (has_bug, has_fix)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LEAST + "fix = 1", "unknown argument fix; correct it"),
        (LEAST.replace("first", "#"), "first is missing; correct it"),
        (LEAST + "[", "not TOML: "),
        (LEAST + "x = " + "[" * 99999, "not TOML: maximum recursion depth"),
        (LEAST + "logs.a-log.shows = 3", "logs[...].shows: want str"),
        (LEAST + "large_pools.'' = 3", "key in large_pools: want str"),
        (LEAST.replace('"2026-11-23"', "2026-11-23"), 'searched is "2026-11-23", want str'),
        (LEAST + FIX.replace('["0.5.12", "0.5.12.post1"]', '["0.5.12.post1", "0.5.12"]'), "0.5.12.post1 is after"),
        (LEAST + FIX.replace("hunks", "lines = [3, 5]\nhunks"), "lines: are 2, with 1 hunks"),
        (LEAST + DOCUMENT + FIX, "a fix has no lines, which its diff in the document shows"),
        (LEAST.replace("A page is freed twice", "A page " * 20) + DOCUMENT, "title: has 140 characters"),
        (LEAST + FIX.replace("hunks", 'context = [["", ""], ["", ""]]\nhunks'), "context: is of 2, with 1 hunks"),
        (LEAST + 'name = "other"', "has name, which is that of the file; remove it"),
        (LEAST.replace("new issue", "soon"), "verdict"),
        (LEAST.replace("cause", "#"), "cause is missing; correct it"),
    ],
)
def test_file_that_is_no_bug_is_refused_with_its_path(tmp_path, text, complaint):
    with pytest.raises(UsageError) as raised:
        bug_of(tmp_path, text)

    assert str(raised.value).startswith(f"{tmp_path / 'some-bug.toml'}: ")
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_folder_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "some-bug.toml").mkdir()

    with pytest.raises(UsageError, match=r"some-bug.toml: cannot be read: .*; remove it or make it a file"):
        known_bugs_in(tmp_path)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_op_log_expects_a_fingerprint_of_its_bug(bug):
    expected = [load_log(path, engine=engine_of(bug)).header.expected for path in bug.oplogs]

    assert set(expected) <= set(bug.fingerprints)
    assert expected[0] == bug.fingerprints[0]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_named_op_log_exists_and_each_further_one_is_described(bug):
    further = [path.stem for path in list(bug.oplogs)[1:]]

    assert set(bug.logs) - {bug.name} == set(further)
    assert all(bug.logs[name].shows for name in further)


def engine_of(bug):
    return next(engine for engine in ENGINES if bug in own_bugs(engine))


def test_unknown_fix_is_refused():
    with pytest.raises(UsageError, match=r"^fix no-such: demo has no known bug of this name; it has none$"):
        fix_of(target_of("demo"), "no-such")


def test_folder_of_the_embargo_adds_bugs_of_an_engine_and_no_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/some-bug.toml").write_text(LEAST)

    assert "some-bug" not in target_of("demo").known_bugs()
    monkeypatch.setenv(EMBARGO, str(tmp_path))
    assert "some-bug" in target_of("demo").known_bugs()
    monkeypatch.setenv(EMBARGO, str(tmp_path / "none"))
    with pytest.raises(UsageError, match=f"^{EMBARGO}: .*none is no folder; correct it, or unset it$"):
        target_of("demo").known_bugs()
