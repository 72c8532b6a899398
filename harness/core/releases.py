"""Releases of an engine's package: of this environment, installed beside it, and checkouts that are linked there."""

import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from runpy import run_module
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import opened
from swarden.harness.core.process import Interpreter, Process, ProcessDied, ProcessLimits
from swarden.harness.core.sources import distribution_with

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?")
CHECKOUT = "checkout"  # the version of sources that do not know theirs
LINKED = re.compile(rf"{CHECKOUT}-[a-z0-9]+")  # the name of a checkout that is linked beside the releases
LINKS = "SWARDEN_LINKS"  # the variable with the folder of the checkouts that one command and its processes have linked
NEWER_THAN_ALL = (sys.maxsize,)
UNTAGGED = re.compile(r"0\.[01](\.\d+)*\.?dev")  # the version of setuptools_scm for a clone without tags
SHARED = "packages"
UNFINISHED = ".unfinished"
CONTENTS = ".swarden"  # in the shared directory: the Python and the list of packages that it was made for
OPTIONS = ("--disable-pip-version-check", "--no-input")
WHEELS = ("--quiet", "--no-deps", "--only-binary", ":all:")
INSTALL = ("install", *WHEELS, "--no-compile", "--target")
DOWNLOAD = ("download", *WHEELS, "--dest")
METADATA = ".dist-info/"
NO_INDEX = ("(from versions: none)", "connection broken")  # in pip's errors
ON_INDEX = "Available versions: "  # in the output of "pip index versions"


def parsed(version: str) -> tuple[int, ...]:
    """Major, minor, micro and post release, for comparisons; a checkout is newer than all releases."""
    if version == CHECKOUT or LINKED.fullmatch(version):
        return NEWER_THAN_ALL
    match = VERSION.match(version)
    if match is None:
        raise UsageError(f"{version}: not a version; want one such as 0.5.12.post1")
    return tuple(int(part or 0) for part in match.groups())


class InEnvironment(NamedTuple):
    """A package that this environment can import.  `is_release` is false for a checkout, whose sources can change."""

    version: str
    folder: Path
    is_release: bool


@cache
def in_environment(package: str) -> InEnvironment | None:
    """The package of this environment, as it is before a release is put on the path; None if there is none."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:  # without an origin it is a folder that happens to have this name
        return None
    folder = Path(spec.origin).resolve().parent
    found = distribution_with(package)
    if found is None:
        return InEnvironment(CHECKOUT, folder, is_release=False)
    if found.read_text("RECORD") is not None and Path(str(found.locate_file(package))).resolve() == folder:
        return InEnvironment(found.version, folder, is_release=True)
    is_named = _is_editable(found) and not UNTAGGED.match(found.version)
    return InEnvironment(found.version if is_named else CHECKOUT, folder, is_release=False)


def _is_editable(distribution: Distribution) -> bool:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


@dataclass(frozen=True)
class Releases:
    """The releases of a package below `root`, a directory each; another directory has the packages that they share.

    Both are installed without dependencies.  A directory appears under its name when it is complete.
    """

    package: str
    root: Path
    requirements: Path  # the pins of the shared packages
    release_size: str  # of a download, about, with its unit
    shared_size: str  # likewise
    from_environment: tuple[str, ...] = ()  # packages with several builds, which the user installs
    kept_files: tuple[str, ...] = ()  # suffixes: only such files and the metadata of a release are unpacked
    distribution: str = ""  # the name of the package on the index, if it differs
    repository: str = ""  # on GitHub
    sources: str = ""  # the folder of the repository that has the package
    stand_ins: tuple[str, ...] = ()  # packages that a release imports, each replaced if it is not installed
    report: str = ""  # the command whose output an issue for the engine shall have
    num_embargoed: int = 0  # known bugs under embargo
    oldest: str = ""  # the first release that is driven
    beside: str = ""  # NAME==VERSION, unpacked into the folder of each release if it has a wheel here

    @property
    def pins(self) -> dict[str, str]:
        """The versions of the packages that the releases share."""
        lines = [line.partition("==") for line in self.requirements.read_text().splitlines()]
        return {name: version for name, separator, version in lines if separator}

    @property
    def on_index_as(self) -> str:
        return self.distribution or self.package

    def has_name(self, version: str) -> bool:
        """Whether a release can have this name; a checkout and a development version are not releases."""
        return VERSION.fullmatch(version) is not None

    def installed(self) -> list[str]:
        """The versions that are installed here, oldest first."""
        versions = [place.parent.name for place in self.root.glob(f"*/{self.package}")]
        return sorted((name for name in versions if self.has_name(name) and self._shared.is_dir()), key=parsed)

    def linked(self) -> list[str]:
        """The names of the checkouts that are linked here."""
        return sorted(self._links)

    @property
    def _links(self) -> dict[str, Path]:
        """The folder of each link, by its name; those of this command come before those below the root."""
        roots = [self.root, *(Path(folder) for folder in [os.environ.get(LINKS)] if folder)]
        folders = [folder for root in roots for folder in root.glob(f"{CHECKOUT}-*")]
        return {folder.name: folder for folder in folders if (folder / self.package).is_symlink()}

    def checkout_of(self, version: str) -> Path | None:
        """The sources of a version that can change: of a linked checkout, or of that of this environment."""
        if (link := self._links.get(version)) is not None:
            return (link / self.package).resolve()
        here = in_environment(self.package)
        return here.folder if here is not None and here.version == version and not here.is_release else None

    def on_index(self) -> list[str]:
        """The releases that the package index has, oldest first; raises UsageError if pip cannot read it."""
        told = _pip(f"list the releases of {self.on_index_as}", "index", "versions", self.on_index_as)
        listed = [line.removeprefix(ON_INDEX) for line in told.splitlines() if line.startswith(ON_INDEX)]
        return sorted(filter(self.has_name, ", ".join(listed).split(", ")), key=parsed)

    def folders_of(self, version: str) -> tuple[Path, ...]:
        """The directories to put on the path for this version; empty if it is in the environment or not installed.

        Raises UsageError if it is a checkout whose folder is gone.
        """
        found = in_environment(self.package)
        here = (*self.installed(), *self.linked())
        if (found is not None and found.version == version) or version not in here:
            return ()
        folder = self._links.get(version, self.root / version)
        if not (sources := (folder / self.package).resolve()).is_dir():
            raise UsageError(f"{self.on_index_as}=={version}: its folder {sources} is gone; link or remove it")
        return (folder.resolve(), self._shared.resolve())

    def download_for(self, version: str) -> str:
        """What an installation of this version downloads, with sizes; "" if it is installed."""
        self._check(version)
        parts = []
        if not self._has(version):
            parts.append(f"{self.on_index_as} {version} ({self.release_size})")
        if not self._shared_is_complete:
            parts.append(f"the packages that its releases share ({self._contents.count('==')}, {self.shared_size})")
        return " and ".join(parts)

    @property
    def absent(self) -> list[str]:
        """The packages that must be in the environment and are missing there."""
        return [name for name in self.from_environment if find_spec(name) is None]

    def install(self, version: str) -> str:
        """Install what `download_for` names (UsageError if it fails); returns why `beside` is left out, or ""."""
        self._check(version)
        left_out = ""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._alone() as unfinished:
            release = unfinished / "release"
            if not self._has(version) and self.kept_files:
                _unpack(unfinished / "wheels", release, f"{self.on_index_as}=={version}", self.kept_files)
            elif not self._has(version):
                _install(release, f"{self.on_index_as}=={version}")
            if release.is_dir() and self.beside:
                try:
                    _unpack(unfinished / "beside", release, self.beside, self.kept_files)
                except UsageError as error:
                    left_out = str(error)
            self._install_shared(unfinished / "shared")
            if release.is_dir():
                release.rename(self.root / version)
        return left_out

    def sources_in(self, checkout: Path) -> Path | None:
        """The folder of the package in a checkout of its repository, or of the folder above it; None if it is none."""
        places = [checkout / self.sources / self.package, checkout / self.package]
        return next((place.resolve() for place in places if (place / "__init__.py").is_file()), None)

    def link(self, version: str, checkout: Path, folder: Path | None = None, *, option: str = "--from") -> None:
        """Link the sources of a checkout, in place of an earlier one, and install the shared packages.

        The link is below a `folder`, else below the root.  Raises UsageError if the version is no name for a checkout,
        or the folder is none; the message names the `option`.
        """
        if not LINKED.fullmatch(version):
            name = f"{self.on_index_as}=={CHECKOUT}"
            raise UsageError(f"--from: {version!r} is no name for a checkout; want one such as {name}-head")
        sources = self.sources_in(checkout)
        if sources is None:
            what = f"no {self.sources}{self.package}/__init__.py"
            raise UsageError(f"{option}: {checkout} has {what}; name a checkout of {self.on_index_as}")
        self.root.mkdir(parents=True, exist_ok=True)
        with self._alone() as unfinished:
            self._install_shared(unfinished / "shared")
            (unfinished / "release").mkdir()
            (unfinished / "release" / self.package).symlink_to(sources)
            _delete(linked := (folder or self.root) / version)
            shutil.move(unfinished / "release", linked)

    def remove(self, version: str) -> None:
        """Delete a release (with the last the shared packages) or a checkout's link; raises UsageError otherwise."""
        if version not in (*self.installed(), *self.linked()):
            here = ", ".join([*self.installed(), *self.linked()]) or "none"
            raise UsageError(f"{self.on_index_as}=={version} is not installed in {self.root}; installed are: {here}")
        with self._alone() as unfinished:
            (self.root / version).rename(unfinished / "release")
            if not (self.installed() or self.linked()):
                _delete(self._shared)

    @property
    def _shared(self) -> Path:
        return self.root / SHARED

    @property
    def _contents(self) -> str:
        return f"python {sys.version_info.major}.{sys.version_info.minor}\n{self.requirements.read_text()}"

    @property
    def _shared_is_complete(self) -> bool:
        made_for = self._shared / CONTENTS
        return made_for.is_file() and made_for.read_text() == self._contents

    def _install_shared(self, shared: Path) -> None:
        """Install the shared packages into a new directory, unless they are complete, and put it in place."""
        if not self._shared_is_complete:
            _install(shared, "--requirement", str(self.requirements))
            (shared / CONTENTS).write_text(self._contents)
            _delete(self._shared)
            shared.rename(self._shared)

    def _has(self, version: str) -> bool:
        return (self.root / version / self.package).is_dir()

    def _check(self, version: str) -> None:
        if not self.has_name(version):
            name = self.on_index_as
            raise UsageError(f"{name}=={version}: not a version; want one such as {name}==0.5.12.post1")
        self.check_age(version)

    def check_age(self, version: str) -> None:
        """Raises UsageError if the release is older than the first that is driven."""
        if self.oldest and parsed(version) < parsed(self.oldest):
            name = self.on_index_as
            raise UsageError(f"{name}=={version}: {name} is driven from {self.oldest} on; name a newer release")

    @contextmanager
    def _alone(self) -> Iterator[Path]:
        """A directory for unfinished work, empty at first and deleted after; other processes wait until then."""
        unfinished = self.root / UNFINISHED
        with opened(self.root / ".lock", "ab", inside=self.root) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _delete(unfinished)
            unfinished.mkdir()
            try:
                yield unfinished
            finally:
                _delete(unfinished)


def _install(folder: Path, *what: str) -> None:
    """Install wheels into a new directory; nothing is built, and no dependency is followed."""
    _pip(f"install {what[-1]}", *INSTALL, str(folder), *what, inside=folder.parent)


def _unpack(wheels: Path, folder: Path, what: str, suffixes: tuple[str, ...]) -> None:
    """Unpack the files with these suffixes, and the metadata, of a wheel into a new directory."""
    _pip(f"download {what}", *DOWNLOAD, str(wheels), what, inside=wheels.parent)
    for wheel in wheels.iterdir():
        with ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if METADATA in name or name.endswith(suffixes)]
            archive.extractall(folder, names)


def _pip(deed: str, *arguments: str, inside: Path | None = None) -> str:
    """The output of pip; raises UsageError with pip's first error if it fails.  `deed` names what pip was to do."""
    if find_spec("pip") is None:
        raise UsageError(f"this Python has no pip; run: {sys.executable} -m ensurepip")
    with TemporaryDirectory(prefix="swarden-pip-", dir=inside and inside.resolve()) as folder:
        interpreter = Interpreter(sys.executable, sys.path, {"TMPDIR": folder})
        limits = ProcessLimits(is_folder_temporary=True)
        with Process(Path(folder, "running"), limits, interpreter) as process:
            try:
                output: str = process.call(_output_of_pip, deed, arguments)
            except ProcessDied as error:
                raise UsageError(f"pip cannot {deed}: its process {error.death.how}") from error
    return output


def _output_of_pip(deed: str, arguments: Sequence[str]) -> str:
    """Run pip in this process, which ends with its parent."""
    sys.argv[1:] = [*OPTIONS, *arguments]
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        try:
            run_module("pip", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                lines = [line for line in errors.getvalue().splitlines() if line.startswith("ERROR: ")]
                why = lines[-1].removeprefix("ERROR: ") if lines else f"exit code {end.code}"
                if any(sign in errors.getvalue() for sign in NO_INDEX):
                    why += "; pip sees no version at all: is the package index reachable?"
                raise UsageError(f"pip cannot {deed}: {why}") from end
    return output.getvalue()


def _delete(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
