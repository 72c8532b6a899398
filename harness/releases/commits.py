"""Commits of a checkout: their files, extracted into another folder, and the first commit that an op-log fails on."""

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import CHECKOUT, LINKS, Releases
from swarden.harness.core.replay import Replays, not_run
from swarden.harness.releases.bisect import Bisection, Note, Search, releases_of
from swarden.harness.search.judge import BY_LAW, judge_alone

GIT_S = 300.0  # of one call of git
NAME = "--abbrev=12"  # of a commit


class History(NamedTuple):
    """A checkout, a revision that is good, and a later one that is bad."""

    checkout: Path
    good: str
    bad: str

    @property
    def commits(self) -> list[str]:
        """The commits between both, oldest first; of a merge the first parent.

        The first one is the good one, or the commit from which its branch and that of the bad one come.
        """
        ends = (f"{revision}^{{commit}}" for revision in (self.good, self.bad))
        try:
            merged = git(self.checkout, "merge-base", "--end-of-options", *ends)
        except UsageError as error:
            raise UsageError(f"--git: {error}; name a checkout, a good commit and a later one") from error
        chain = ["--first-parent", "--reverse", "--end-of-options", f"{merged}..{self.bad}^{{commit}}"]
        later = git(self.checkout, "rev-list", "--abbrev-commit", NAME, *chain).split()
        if not later:
            raise UsageError(f"--git: {self.bad} is not later than {self.good}; name the good one first")
        return [git(self.checkout, "rev-parse", NAME.replace("abbrev", "short"), merged), *later]


def bisected_commits(path: Path, engine: str | None, history: History, note: Note, *, every: bool) -> Bisection:
    """Replay an op-log on commits: a commit that cannot run it, or fails otherwise, is neither good nor bad."""
    name = engine or load_log(path).header.engine
    releases, commits = releases_of(name), history.commits

    def replay(commit: str) -> Replays:
        version = f"{CHECKOUT}-{commit}"
        with links() as folder:
            try:
                extract(history.checkout, commit, folder / "tree", releases)
                releases.link(version, folder / "tree", folder, option="--git")
            except UsageError as error:
                return not_run(str(error))
            return judge_alone(path, f"{name}=={version}", BY_LAW)

    return Search(name, commits, replay, note).around(commits[-1], path, every=every)


def described(history: History, bisection: Bisection) -> list[str]:
    """The first commit that fails, and the commits right before it that cannot run, so that each may be the first."""
    first = bisection.boundaries.first_failing
    if first is None:
        return []
    older = reversed(bisection.versions[: bisection.versions.index(first)])
    unknown = " or ".join(takewhile(lambda commit: commit in bisection.left_out, older))
    line = git(history.checkout, "log", "-1", NAME, "--format=%h %s (%an, %as)", first)
    return [line, f"perhaps since {unknown} already: it cannot be judged there"] if unknown else [line]


@contextmanager
def links() -> Iterator[Path]:
    """A folder for what this process and those that it starts link and extract, until the body ends."""
    with TemporaryDirectory(prefix="swarden-links-") as folder:
        os.environ[LINKS] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[LINKS]


def extract(checkout: Path, revision: str, tree: Path, only: Releases | None = None) -> None:
    """Write what a revision has to a new folder, or its package alone; nothing of the checkout is changed."""
    paths = [f"{only.sources}{only.package}"] if only is not None else []
    options = ["--format=tar", f"--output={tree}.tar", "--end-of-options"]
    git(checkout, "archive", *options, f"{revision}^{{commit}}", *paths)
    with tarfile.open(f"{tree}.tar") as content:
        content.extractall(tree, filter="tar")


def git(checkout: Path, *arguments: str) -> str:
    """What git prints in a checkout; raises UsageError with its reason."""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_S)
    except subprocess.CalledProcessError as error:
        why = error.stderr.splitlines() or [str(error)]
        raise UsageError(why[-1]) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(str(error)) from error
    return done.stdout.strip()
