"""Refuses to build in a tree without the links of `src/swarden`; all else about the package is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

if not Path("src/swarden/harness").is_dir():
    sys.exit("swarden: src/swarden/harness is no folder, as in a zip of the repository; use a git clone or a tar file")
setup()
