"""The hash of a build changes if and only if a source changes."""

import pytest

from swarden.harness.core.sources import hash_of, hash_of_packages


@pytest.fixture
def build(tmp_path):
    for name in ("engine_under_test/pools/ledger.py", "harness/core/ops.py", "tests/test_ops.py", "harness/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", ["engine_under_test/pools/ledger.py", "harness/core/ops.py", "fakes/clock.py"])
def test_changed_or_added_source_changes_the_hash(build, name):
    before = hash_of([build / "engine_under_test", build / "harness", build / "fakes"])
    (build / name).parent.mkdir(exist_ok=True)

    (build / name).write_text("pass")

    assert hash_of([build / "engine_under_test", build / "harness", build / "fakes"]) != before


@pytest.mark.parametrize("name", ["tests/test_ops.py", "harness/notes.txt"])
def test_other_file_does_not_change_the_hash(build, name):
    before = hash_of([build / "engine_under_test", build / "harness", build / "fakes"])

    (build / name).write_text("pass")

    assert hash_of([build / "engine_under_test", build / "harness", build / "fakes"]) == before


def test_version_of_other_sources_changes_the_hash(build):
    assert len({hash_of([build / "harness"], version) for version in ("", "1.2.3", "1.2.4")}) == 3


def test_missing_and_builtin_packages_do_not_change_the_hash():
    assert len(hash_of_packages(("swarden.harness",))) == 16
    assert hash_of_packages(("swarden.harness", "no_such_package", "sys")) == hash_of_packages(("swarden.harness",))
