"""The CPU seconds from a cold start to a shrunk finding, relative to a machine that a user writes with Hypothesis.

Both drive the demo's engine with one bug planted; each search is a process of its own, whose imports count:

    swarden fuzz --engine demo --stop-on-first --workers 1 --mutant MUTANT --seed SEED
    python -m swarden.harness.bench.from_cold MUTANT SEED
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from os import times
from statistics import geometric_mean
from typing import NamedTuple

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from swarden.harness.bench.by_hand import DemoByHand
from swarden.harness.bench.timing import Measured, in_turns
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.engines.demo.mutants import MUTANTS

SEEDS = (1, 2, 3)
BUGS = [mutant.id for mutant in MUTANTS.all]
CAMPAIGN = ("fuzz", "--engine", "demo", "--stop-on-first", "--workers", "1")
MOST_SECONDS = 60  # of CPU for a process; a search that needs more counts with these
FOUND_BY_HAND = 10  # its exit code if the machine has failed; Python ends with 1 after any other error


class Search(NamedTuple):
    """One search: its CPU seconds, and whether it ended with a finding."""

    seconds: float
    is_found: bool


def measure(mutants: Iterable[str] = BUGS, seeds: Sequence[int] = SEEDS) -> Iterator[Measured]:
    """Search for each bug from each seed, with swarden and with the machine by hand in turns; then the ratio of all."""
    yield Measured("CPU from a cold start to a shrunk finding, a machine written by hand with Hypothesis / swarden:")
    ratios: list[float] = []
    for mutant in mutants:
        pairs = [next(in_turns(partial(_ours, mutant, seed), partial(_by_hand, mutant, seed))) for seed in seeds]
        ratios += [by_hand.seconds / ours.seconds for ours, by_hand in pairs]
        yield Measured(
            f"{mutant}: {_line([by_hand for _, by_hand in pairs])} / {_line([ours for ours, _ in pairs])}",
            {
                "from_cold": [
                    {"mutant": mutant, "seed": seed, "ours": ours, "by_hand": by_hand}
                    for seed, (ours, by_hand) in zip(seeds, pairs, strict=True)
                ]
            },
        )
    ratio = geometric_mean(ratios)
    yield Measured(f"all of them: {ratio:.1f}", {"from_cold_ratio": round(ratio, 2)})


def _line(searches: Sequence[Search]) -> str:
    mean = geometric_mean(search.seconds for search in searches)
    return f"{mean:.1f} s, found {sum(search.is_found for search in searches)} of {len(searches)}"


def _ours(mutant: str, seed: int) -> Search:
    command = ("swarden.harness.cli", *CAMPAIGN, "--mutant", mutant, "--seed", str(seed))
    return _search(*command, found=(ExitCode.VIOLATED, ExitCode.STUCK))


def _by_hand(mutant: str, seed: int) -> Search:
    return _search(__spec__.name, mutant, str(seed), found=(FOUND_BY_HAND,))


def _search(*module: str, found: Collection[int]) -> Search:
    """Run a module with its arguments in a folder and a process of its own, which may use MOST_SECONDS of CPU."""
    before = times()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", *module]
        ended = subprocess.run(command, cwd=folder, capture_output=True, preexec_fn=_limit_cpu, check=False)
    after = times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Search(round(seconds, 2), ended.returncode in found)


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))


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
