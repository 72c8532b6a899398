"""Which build this is: a hash over everything that decides how a run goes."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGES = ("engine_under_test", "fakes", "harness", "invariants")
HASH_LEN = 16  # hex digits
ROOT = Path(__file__).resolve().parents[2]


def hash_of(root: Path) -> str:
    """The hash over the paths and the bytes of the packages' sources below `root`."""
    found = hashlib.sha256()
    paths = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in paths):
        content = path.read_bytes()
        found.update(f"{name}\n{len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()[:HASH_LEN]


@cache
def source_hash() -> str:
    """The hash of the sources that run here, as they were when it was first asked for."""
    return hash_of(ROOT)
