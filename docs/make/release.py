"""Builds the wheel and the sdist: `python -m docs.make.release DIR`.

Once the repository has a public address, REPOSITORY is that address: links of the README become absolute, and the
metadata has URLs. Once the index has the package, IS_ON_INDEX is true: the README has the command for it.
"""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ""  # as in https://HOST/OWNER/swarden
IS_ON_INDEX = False
LINK = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:|#)([^)]+)\)")
TRY_FROM_INDEX = re.compile(r"^<!-- on the index: (.*) -->$", re.MULTILINE)
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # a build changes the arguments
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""


def build(folder: Path, *, repository: str = REPOSITORY, is_on_index: bool = IS_ON_INDEX) -> None:
    """Build both below `folder`, from a copy of the tracked files, because a build writes beside them."""
    with TemporaryDirectory() as temporary:
        copy = Path(temporary)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        archive = subprocess.run(
            ["tar", "--null", "-T", "-", "-c"], input=files, cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x"], input=archive, cwd=copy, check=True)
        readme = copy / "README.md"
        readme.write_text(published(readme.read_text(), repository, is_on_index=is_on_index))
        if repository:
            with (copy / "pyproject.toml").open("a") as project:
                project.write(f'\n[project.urls]\nRepository = "{repository}"\nIssues = "{repository}/issues"\n')
        command = [sys.executable, "-c", BUILD, str(folder.resolve())]
        subprocess.run(command, cwd=copy, capture_output=True, check=True)


def published(page: str, repository: str, *, is_on_index: bool) -> str:
    """The README with links to the repository, and with the command of the index, as far as there are these two."""
    if is_on_index:
        page = TRY_FROM_INDEX.sub(r"```\n\1\n```", page)
    if not repository:
        return page

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({repository}/{kind}/main/{link[3]})"

    return LINK.sub(absolute, page)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    build(target)
