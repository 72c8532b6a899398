"""The CPU seconds from a cold start to a shrunk finding, relative to a machine that a user writes with Hypothesis.

Both drive the demo's engine with one bug planted; each search is a process of its own, whose imports count.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from os import times
from statistics import geometric_mean
from typing import NamedTuple

from swarden.harness.bench.by_hand import FOUND
from swarden.harness.bench.timing import Case
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.engines.demo.mutants import MUTANTS

SEEDS = (1, 2, 3)
BUGS = [mutant.id for mutant in MUTANTS.all]
OURS = "swarden.harness.cli fuzz --engine demo --stop-on-first --workers 1 --mutant {} --seed {}"
BY_HAND = "swarden.harness.bench.by_hand {} {}"
MOST_SECONDS = 60  # of CPU for a process; a search that needs more counts with these


class Search(NamedTuple):
    """One search: its CPU seconds, and whether it ended with a finding."""

    seconds: float
    is_found: bool


def measure(mutants: Iterable[str] = BUGS, seeds: Sequence[int] = SEEDS) -> Iterator[Case]:
    """Search for each bug from each seed, with the machine by hand and with swarden in turns; then the ratio of all."""
    ratios: list[float] = []
    for mutant in mutants:
        by_hand, ours = [], []
        for seed in seeds:
            by_hand.append(_search(BY_HAND.format(mutant, seed), FOUND))
            ours.append(_search(OURS.format(mutant, seed), ExitCode.VIOLATED, ExitCode.STUCK))
            ratios.append(by_hand[-1].seconds / ours[-1].seconds)
        yield Case(f"a cold start to {mutant}", {"by hand": _figures(by_hand), "swarden": _figures(ours)})
    yield Case("CPU from a cold start to a finding, by hand / swarden", {"ratio": round(geometric_mean(ratios), 2)})


def _figures(searches: Sequence[Search]) -> dict[str, float]:
    mean = geometric_mean(search.seconds for search in searches)
    return {"CPU s": round(mean, 2), "found": sum(search.is_found for search in searches), "of": len(searches)}


def _search(module: str, *found: int) -> Search:
    """Run a module with its arguments in a folder and a process of its own, which may use MOST_SECONDS of CPU."""
    before = times()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", *module.split()]
        ended = subprocess.run(command, cwd=folder, capture_output=True, preexec_fn=_limit_cpu, check=False)
    after = times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Search(seconds, ended.returncode in found)


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
