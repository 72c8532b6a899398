"""The CPU seconds from a cold start to a shrunk finding, relative to a machine that a user writes with Hypothesis.

Both drive the demo's engine with one bug planted; each search is a process of its own, whose imports count:

    swarden fuzz --engine demo --stop-on-first --workers 1 --mutant MUTANT --seed SEED
    python -m swarden.harness.bench.from_cold MUTANT SEED
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from swarden.harness.bench.by_hand import DemoByHand
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.engines.demo.mutants import MUTANTS

BUGS = [one.id for one in MUTANTS.all]
SEEDS = (1, 2, 3)
CAMPAIGN = ("fuzz", "--engine", "demo", "--stop-on-first", "--workers", "1")
MOST_SECONDS = 60  # of CPU for a process; a search that needs more counts with these
FOUND_BY_HAND = 10  # its exit code if the machine has failed; Python ends with 1 after any other error


class Search(NamedTuple):
    """One search: its CPU seconds, and whether it ended with a finding."""

    seconds: float
    is_found: bool


class SearchPair(NamedTuple):
    """Both searches for one bug from one seed."""

    mutant: str
    seed: int
    ours: Search
    by_hand: Search

    @property
    def ratio(self) -> float:
        return self.by_hand.seconds / self.ours.seconds


def measure(mutants: Sequence[str] = BUGS, seeds: Sequence[int] = SEEDS) -> list[SearchPair]:
    """Search for each bug from each seed, with swarden and with the machine by hand in turn."""
    return list(_pairs(mutants, seeds))


def _pairs(mutants: Sequence[str], seeds: Sequence[int]) -> Iterator[SearchPair]:
    for mutant in mutants:
        for seed in seeds:
            planted = ("--mutant", mutant, "--seed", str(seed))
            ours = _search("swarden.harness.cli", *CAMPAIGN, *planted, found=(ExitCode.VIOLATED, ExitCode.STUCK))
            yield SearchPair(mutant, seed, ours, _search(__spec__.name, mutant, str(seed), found=(FOUND_BY_HAND,)))


def _search(module: str, *arguments: str, found: Collection[int]) -> Search:
    """Run a module in a folder and a process of its own, which may use MOST_SECONDS of CPU."""
    before, command = _children_seconds(), [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, cwd=folder, capture_output=True, preexec_fn=_limit_cpu, check=False)
    return Search(_children_seconds() - before, ended.returncode in found)


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def figures(pairs: Sequence[SearchPair]) -> dict[str, Any]:
    return {
        "from_cold_ratio": round(geometric_mean(one.ratio for one in pairs), 2),
        "from_cold": [
            {
                "mutant": one.mutant,
                "seed": one.seed,
                "ours": [round(one.ours.seconds, 2), one.ours.is_found],
                "by_hand": [round(one.by_hand.seconds, 2), one.by_hand.is_found],
            }
            for one in pairs
        ],
    }


def text(pairs: Sequence[SearchPair]) -> str:
    """The ratio over all searches, and a line for each bug."""

    def of(mutant: str, side: Callable[[SearchPair], Search]) -> str:
        searches = [side(one) for one in pairs if one.mutant == mutant]
        mean = geometric_mean(one.seconds for one in searches)
        return f"{mean:.1f} s, found {sum(one.is_found for one in searches)} of {len(searches)}"

    ratio = geometric_mean(one.ratio for one in pairs)
    lines = [
        f"{name}: {of(name, lambda one: one.by_hand)} / {of(name, lambda one: one.ours)}"
        for name in dict.fromkeys(one.mutant for one in pairs)
    ]
    head = "CPU from a cold start to a shrunk finding, a machine written by hand with Hypothesis / swarden"
    return "\n".join([f"{head}: {ratio:.1f}", *lines])


def _is_found_by_hand(mutant: str, seed: int) -> bool:
    """Search for the bug with the machine that a user writes, with more examples than by default."""
    search = hypothesis.settings(max_examples=1_000_000, deadline=None, database=None)
    [planted] = [one.planted() for one in MUTANTS.all if one.id == mutant]
    is_found = False
    with planted:
        try:
            run_state_machine_as_test(hypothesis.seed(seed)(DemoByHand), settings=search)
        except* AssertionError:  # of the machine, or several; another error goes on
            is_found = True
    return is_found


if __name__ == "__main__":
    sys.exit(FOUND_BY_HAND if _is_found_by_hand(sys.argv[1], int(sys.argv[2])) else ExitCode.CLEAN)
