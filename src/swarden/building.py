"""The build of the wheel, which is refused in a tree without the links beside this file."""

import sys
from pathlib import Path

from setuptools.command.build_py import build_py


class CheckedBuild(build_py):  # type: ignore[misc]  # setuptools has no types
    """Builds the packages, unless a zip file of the repository has replaced their links by text files."""

    def finalize_options(self) -> None:
        if not Path("src/swarden/harness").is_dir():
            where = "src/swarden/harness is no folder, as in a zip of the repository"
            sys.exit(f"swarden: {where}; use a git clone or a tar file")
        super().finalize_options()
