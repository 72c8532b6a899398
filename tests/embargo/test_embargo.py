"""The bugs under embargo: they are complete and counted, and no other file tells of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from docs.make import publish
from docs.make.pages import ROOT
from swarden.harness.core.known_bug import EMBARGO, PRIVATE, known_bugs_in
from swarden.harness.core.registry import target_of

HERE = Path(__file__).parent
ENGINES = sorted(path.parent.name for path in HERE.glob("*/*.toml"))
BUGS = publish.embargoed(HERE)


@pytest.mark.parametrize("engine", dict.fromkeys(ENGINES))
def test_engine_counts_its_bugs_under_embargo_and_knows_them_only_with_the_folder(engine, monkeypatch):
    target, names = target_of(engine), {*known_bugs_in(HERE / engine)}

    monkeypatch.delenv(EMBARGO, raising=False)
    assert target.releases is not None
    assert target.releases.num_embargoed == len(names)
    assert not names & {*target.known_bugs()}
    monkeypatch.setenv(EMBARGO, str(HERE))
    assert names <= {*target.known_bugs()}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_private_and_judged(bug):
    assert bug.verdict == PRIVATE
    assert f"| {bug.name} |" in (HERE / "README.md").read_text()


def test_no_other_file_tells_of_a_bug():
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [one for one in files.split("\0") if one and not one.startswith(publish.EMBARGO)]
    contents = {one: (ROOT / one).read_bytes() for one in paths if (ROOT / one).is_file()}

    assert [*publish.leaks(contents, BUGS)] == []
    assert f"{len(BUGS)} further bugs are under embargo" in (ROOT / "docs/findings/README.md").read_text()


def test_repository_is_written_without_the_folder_and_not_with_a_leak(tmp_path):
    repository = tmp_path / "repository"
    shutil.copytree(HERE, repository / publish.EMBARGO)
    (repository / "README.md").write_text("swarden")
    git = ["git", "-c", "user.name=someone", "-c", "user.email=someone@example.org"]

    def commit():
        for command in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "some"]):
            subprocess.run([*git, *command], cwd=repository, check=True)

    commit()
    assert publish.publish(tmp_path / "clean", repository) == []
    assert [one.name for one in (tmp_path / "clean").iterdir() if one.name != ".git"] == ["README.md"]
    (repository / "notes.md").write_text(f"see {BUGS[0].fixes[0].hunks[0].at}")
    commit()
    assert publish.publish(tmp_path / "leaking", repository)
    assert not (tmp_path / "leaking").exists()
