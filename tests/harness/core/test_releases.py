"""Releases are installed whole or not at all, from wheels alone; a checkout is distinguished from a release."""

import signal
import socket
import sys
from dataclasses import replace

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import CHECKOUT, Releases, in_environment, parsed
from tests.harness.some_processes import processes_of, running, wait_until
from tests.harness.some_wheels import wheel

PACKAGE = "tinyserve"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder that replaces the package index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel(folder, PACKAGE, "1.2.3", requires="Requires-Dist: no-such-package\n")
    wheel(folder, PACKAGE, "1.10.0.post1")
    wheel(folder, "helper", "4.0.0")
    return folder


@pytest.fixture
def releases(tmp_path):
    requirements = tmp_path / "packages.txt"
    requirements.write_text("# shared\nhelper==4.0.0\n")
    return Releases(
        package=PACKAGE, root=tmp_path / "engines", requirements=requirements, release_size="1 kB", shared_size="2 kB"
    )


@pytest.mark.usefixtures("wheels")
def test_installed_releases_share_their_packages(releases):
    """The declared dependency of 1.2.3 is not followed. Leftovers of a killed installation are no release."""
    (releases.root / ".unfinished/release" / PACKAGE).mkdir(parents=True)
    (releases.root / ".unfinished/shared/helper").mkdir(parents=True)
    assert releases.installed() == []
    assert releases.download_for("1.2.3") == "tinyserve 1.2.3 (1 kB) and the packages that its releases share (1, 2 kB)"
    releases.install("1.2.3")
    assert releases.download_for("1.10.0.post1") == "tinyserve 1.10.0.post1 (1 kB)"
    releases.install("1.10.0.post1")

    assert releases.installed() == ["1.2.3", "1.10.0.post1"]
    assert releases.download_for("1.2.3") == ""
    release, shared = releases.folders_of("1.2.3")
    assert (release / PACKAGE / "__init__.py").read_text() == "VERSION = '1.2.3'\n"
    assert (shared / "helper").is_dir()


def test_release_without_its_other_files_has_only_the_kept_ones_and_its_metadata(releases, wheels):
    wheel(wheels, PACKAGE, "2.0.0", files={"kernels.so": "", "core/scheduler.py": ""})
    kept = replace(releases, kept_files=(".py",))

    kept.install("2.0.0")

    folder = kept.folders_of("2.0.0")[0]
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {
        *(f"{PACKAGE}/__init__.py", f"{PACKAGE}/core/scheduler.py"),
        *(f"{PACKAGE}-2.0.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")),
    }


@pytest.mark.parametrize("version", ["1.0.0", "9.0.0"], ids=["on the index", "not there"])
def test_package_beside_a_release_is_unpacked_if_the_index_has_it(releases, wheels, version):
    wheel(wheels, "neighbour", "1.0.0")
    with_it = replace(releases, kept_files=(".py",), beside=f"neighbour=={version}")

    left_out = with_it.install("1.2.3")

    folder = with_it.folders_of("1.2.3")[0]
    assert left_out.startswith("pip cannot download") == (version == "9.0.0")
    assert (folder / PACKAGE).is_dir()
    assert (folder / "neighbour").is_dir() == (version == "1.0.0")


@pytest.mark.parametrize("lacking", [PACKAGE, "helper"])
def test_failed_installation_leaves_nothing(releases, wheels, lacking):
    for path in wheels.glob(f"{lacking}-*"):
        path.unlink()

    with pytest.raises(UsageError, match=r"^pip cannot install .*: No matching .*; pip sees no version at all: "):
        releases.install("1.2.3")

    assert releases.installed() == []
    assert [path.name for path in releases.root.iterdir()] == [".lock"]


@pytest.mark.usefixtures("wheels")
def test_shared_packages_of_another_list_are_replaced(releases, wheels):
    releases.install("1.2.3")
    wheel(wheels, "helper", "5.0.0")
    releases.requirements.write_text("helper==5.0.0\n")

    assert releases.download_for("1.2.3") == "the packages that its releases share (1, 2 kB)"
    releases.install("1.2.3")

    assert releases.installed() == ["1.2.3"]
    assert (releases.folders_of("1.2.3")[1] / "helper/__init__.py").read_text() == "VERSION = '5.0.0'\n"


@pytest.mark.usefixtures("wheels")
def test_removal_of_the_last_release_removes_the_shared_packages(releases):
    releases.install("1.2.3")
    releases.install("1.10.0.post1")

    releases.remove("1.2.3")
    assert (releases.installed(), releases.folders_of("1.2.3")) == (["1.10.0.post1"], ())
    releases.remove("1.10.0.post1")

    assert [path.name for path in releases.root.iterdir()] == [".lock"]
    with pytest.raises(UsageError, match=r"tinyserve==1\.2\.3 is not installed in .*; installed are: none"):
        releases.remove("1.2.3")


@pytest.mark.usefixtures("wheels")
def test_checkout_is_linked_beside_the_releases_and_is_none(releases, tmp_path):
    """The sources are used as they are, and the shared packages; a checkout whose folder is gone can be removed."""
    sources = tmp_path / "clone" / PACKAGE
    sources.mkdir(parents=True)
    (sources / "__init__.py").touch()

    releases.link("checkout-head", tmp_path / "clone")

    assert (releases.installed(), releases.linked()) == ([], ["checkout-head"])
    assert (releases.checkout_of("checkout-head"), releases.checkout_of("1.2.3")) == (sources, None)
    folder, shared = releases.folders_of("checkout-head")
    assert ((folder / PACKAGE).resolve(), (shared / "helper").is_dir()) == (sources, True)
    (tmp_path / "clone").rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=rf"tinyserve==checkout-head: its folder {sources} is gone; link or remove it"):
        releases.folders_of("checkout-head")
    releases.remove("checkout-head")
    assert (releases.linked(), (tmp_path / "moved").is_dir(), shared.is_dir()) == ([], True, False)


def test_folder_that_is_no_checkout_and_name_of_a_release_are_refused(releases, tmp_path):
    with pytest.raises(UsageError, match=r"^--from: .* has no tinyserve/__init__.py; name a checkout of tinyserve$"):
        releases.link("checkout-head", tmp_path)
    with pytest.raises(UsageError, match=r"want one such as tinyserve==checkout-head$"):
        releases.link("1.2.3", tmp_path)


@pytest.mark.parametrize("version", ["", "1.2", "1.2.3/../..", "../1.2.3", "newest"])
def test_version_that_is_none_is_refused(releases, version):
    with pytest.raises(UsageError, match="not a version"):
        releases.install(version)


def test_release_older_than_the_first_that_is_driven_is_not_downloaded(releases):
    with pytest.raises(UsageError, match=r"^tinyserve==1\.2\.3: tinyserve is driven from 2\.0\.0 on; "):
        replace(releases, oldest="2.0.0").install("1.2.3")


@pytest.mark.parametrize(("number", "left"), [(signal.SIGTERM, [".lock"]), (signal.SIGKILL, [".lock", ".unfinished"])])
def test_pip_ends_with_its_command_and_leaves_no_temporary_file(tmp_path, number, left):
    """The package index accepts a connection and never answers.  The next installation clears what is unfinished."""
    (tmp_path / "temporary").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as index:
        pip = {"PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/", "TMPDIR": str(tmp_path / "temporary")}
        with running("engines", "install", "sglang==9.9.9", cwd=tmp_path, **pip) as process, index.accept()[0]:
            process.send_signal(number)
            process.communicate()
            wait_until(lambda: not processes_of(process.pid))

    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / ".swarden/engines/sglang").iterdir()) == left


def test_python_without_pip_is_told_with_the_remedy(releases, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)

    with pytest.raises(UsageError, match=r"^this Python has no pip; run: .* -m ensurepip$"):
        releases.install("1.2.3")


def test_checkout_is_newer_than_all_releases():
    assert parsed("0.5.9") < parsed("0.5.12") < parsed("0.5.12.post1") < parsed("0.6.0.dev3+g1") < parsed(CHECKOUT)
    assert parsed("checkout-head") == parsed(CHECKOUT)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({}, (CHECKOUT, False), id="path-alone"),
        pytest.param({"src/tinyserve.egg-info/PKG-INFO": "1.2.4.dev1"}, (CHECKOUT, False), id="egg-info"),
        pytest.param({"src/tinyserve-1.2.3.dist-info/RECORD": "1.2.3"}, ("1.2.3", True), id="release"),
        pytest.param({"site/tinyserve-1.2.3.dist-info/RECORD": "1.2.3"}, (CHECKOUT, False), id="hides-a-release"),
        pytest.param(
            {"site/tinyserve-1.2.4.dist-info/editable": "1.2.4.dev1+g12"}, ("1.2.4.dev1+g12", False), id="editable"
        ),
        pytest.param({"site/tinyserve-0.1.dist-info/editable": "0.1.dev1+g12"}, (CHECKOUT, False), id="without-tags"),
    ],
)
def test_package_of_the_environment_is_a_release_or_a_checkout(tmp_path, monkeypatch, metadata, expected):
    package = tmp_path / "src" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for place, version in metadata.items():
        info = (tmp_path / place).parent
        info.mkdir(parents=True)
        for name in ("METADATA", "PKG-INFO"):
            (info / name).write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
        (info / "direct_url.json").write_text(
            '{"dir_info": {"editable": %s}}' % ("true" if "editable" in place else "false")
        )
        if info.suffix == ".dist-info":
            (info / "RECORD").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "src")

    assert in_environment.__wrapped__(PACKAGE) == (expected[0], package, expected[1])


def test_release_is_found_by_its_package_if_its_distribution_has_another_name(tmp_path, monkeypatch):
    package, info = tmp_path / PACKAGE, tmp_path / f"{PACKAGE}_cpu-1.2.3.dist-info"
    for folder in (package, info):
        folder.mkdir()
    (package / "__init__.py").touch()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}-cpu\nVersion: 1.2.3\n")
    (info / "RECORD").write_text(f"{PACKAGE}/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert in_environment.__wrapped__(PACKAGE) == ("1.2.3", package, True)


def test_folder_of_the_same_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / PACKAGE).mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert in_environment.__wrapped__(PACKAGE) is None
