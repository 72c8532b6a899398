"""The releases of SGLang that are installed: one directory each, beside one with the packages that all of them need."""

import re
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

from harness.core.errors import UsageError

ROOT = Path(".swarden/engines/sglang")
SHARED = "packages"
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?")


def parsed(version: str) -> tuple[int, ...]:
    """Major, minor, micro and post release, for comparisons."""
    found = VERSION.match(version)
    if found is None:
        raise UsageError(f"sglang=={version}: not a version; want one such as 0.5.12.post1")
    return tuple(int(part or 0) for part in found.groups())


def installed(root: Path = ROOT) -> list[str]:
    """The versions in directories of their own, oldest first."""
    found = [place.parent.name for place in root.glob("*/sglang") if VERSION.fullmatch(place.parent.name)]
    return sorted(found, key=parsed)


def version_in_environment() -> str:
    """The version of the `sglang` package that this environment can import; "" if it has none."""
    if find_spec("sglang") is None:
        return ""
    try:
        return version_of("sglang")
    except PackageNotFoundError:
        return "0.0.0"


def folders_of(version: str, root: Path = ROOT) -> tuple[Path, ...]:
    """The directories to import this version from; empty if it is in none of its own."""
    place = root / version
    return (place.resolve(), (root / SHARED).resolve()) if (place / "sglang").is_dir() else ()
