"""The repository without what is under embargo, as one commit: `python -m docs.make.publish FOLDER`.

It refuses if a file tells of a bug under embargo: its name, the code that its fix replaces, or the function of that
code, which may only stand in the data and the tables of an engine.
"""

import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

from docs.make.pages import ROOT
from swarden.harness.core.known_bug import KnownBug, known_bugs_in

EMBARGO = "tests/embargo"
OF_ENGINES = "harness/engines/"


def files_of(repository: Path, revision: str = "HEAD") -> dict[str, bytes]:
    """The files of a revision by path, without those under embargo; links are left out."""
    archive = subprocess.run(["git", "archive", revision], cwd=repository, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        members = [member for member in tar if member.isfile() and not member.name.startswith(f"{EMBARGO}/")]
        return {member.name: stream.read() for member in members if (stream := tar.extractfile(member)) is not None}


def embargoed(folder: Path = ROOT / EMBARGO) -> list[KnownBug]:
    return [bug for each in sorted(folder.iterdir()) if each.is_dir() for bug in known_bugs_in(each).values()]


def leaks(files: Mapping[str, bytes], bugs: list[KnownBug]) -> Iterator[str]:
    """A line for each file that tells of a bug."""
    for bug in bugs:
        hunks = [hunk for fix in bug.fixes for hunk in fix.hunks]
        for path, content in files.items():
            secrets = [bug.name, *(hunk.before.strip() for hunk in hunks)]
            secrets += [hunk.at for hunk in hunks if not path.startswith(OF_ENGINES)]
            text = f"{path}\n{content.decode(errors='replace')}"
            if leaked := next((secret for secret in secrets if secret in text), None):
                yield f"{path}: tells of {bug.name}: {' '.join(leaked.split())}"


def publish(folder: Path, repository: Path = ROOT) -> list[str]:
    """Write a repository with one commit of HEAD to a new folder; the leaks, with which nothing is written."""
    files = files_of(repository)
    if leaked := [*leaks(files, embargoed(repository / EMBARGO))]:
        return leaked
    folder.mkdir(parents=True)
    archive = ["git", "archive", "HEAD", "--", ".", f":(exclude){EMBARGO}"]
    tar = subprocess.run(archive, cwd=repository, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=tar, check=True)
    author = ["-c", "user.name=swarden", "-c", "user.email=swarden@localhost"]
    for command in (["init", "-q", "-b", "main"], ["add", "--all", "--force"], ["commit", "-q", "-m", "swarden"]):
        subprocess.run(["git", *author, *command], cwd=folder, check=True)
    return []


if __name__ == "__main__":
    if leaked := publish(Path(sys.argv[1])):
        sys.exit("\n".join(["not published:", *leaked]))
