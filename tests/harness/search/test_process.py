"""A process that drives engines follows no link in the temporary directory, and draws nothing from imported modules."""

import subprocess
import sys
from pathlib import Path

from tests.harness.some_processes import swarden_process


def test_link_in_the_temporary_directory_is_not_followed(tmp_path):
    temporary, victim = tmp_path / "tmp", tmp_path / "victim"
    temporary.mkdir()
    victim.mkdir()
    (temporary / "swarden-hypothesis").symlink_to(victim)

    run = swarden_process(
        "fuzz", "--engine", "demo", "--runs", 24, "--workers", 1, "--seed", 1, cwd=tmp_path, TMPDIR=str(temporary)
    )

    assert run.returncode == 1, run.stderr
    assert list(victim.iterdir()) == []
    assert [path.name for path in temporary.iterdir()] == ["swarden-hypothesis"]


DRAWS = """
import sys
from hypothesis import given, seed, settings, strategies
from swarden.harness.search.process import prepare_process
sys.path.append(sys.argv[1])
import numbers_of_an_engine
drawn = set()
@seed(1)
@settings(max_examples=1000, database=None)
@given(strategies.lists(strategies.integers(0, 10**12), min_size=10))
def draw(numbers):
    drawn.update(numbers)
prepare_process()
draw()
print(len(drawn) > 1000, 987654321 in drawn)
"""


def test_numbers_in_the_source_of_imported_modules_are_not_drawn(tmp_path):
    (tmp_path / "numbers_of_an_engine.py").write_text("NUMBER = 987654321\n")

    root = Path(__file__).parents[3]
    drawn = subprocess.run(
        [sys.executable, "-c", DRAWS, tmp_path], cwd=root, capture_output=True, text=True, check=True
    )

    assert drawn.stdout == "True False\n"
