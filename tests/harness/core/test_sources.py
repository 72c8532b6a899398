"""The hash of a build changes with each source, and with nothing else."""

import pytest

from harness.core.sources import hash_of, source_hash


@pytest.fixture
def build(tmp_path):
    for name in ("engine_under_test/pools/ledger.py", "harness/core/ops.py", "tests/test_ops.py", "harness/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", ["engine_under_test/pools/ledger.py", "harness/core/ops.py", "fakes/clock.py"])
def test_a_source_that_changes_or_comes_changes_the_hash(build, name):
    before = hash_of(build)
    (build / name).parent.mkdir(exist_ok=True)

    (build / name).write_text("pass")

    assert hash_of(build) != before


@pytest.mark.parametrize("name", ["tests/test_ops.py", "harness/notes.txt"])
def test_what_is_no_source_of_a_run_does_not(build, name):
    before = hash_of(build)

    (build / name).write_text("pass")

    assert hash_of(build) == before


def test_a_source_that_moves_changes_the_hash(build):
    before = hash_of(build)

    (build / "harness/core/ops.py").rename(build / "harness/deeds.py")

    assert hash_of(build) != before


def test_this_build_has_one_hash():
    assert len(source_hash()) == 16
    assert source_hash() == source_hash()
