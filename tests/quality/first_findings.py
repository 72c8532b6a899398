"""The CPU seconds until each listed bug of our engine is first found, on two trees, and a paired test.

    python -m tests.quality.first_findings search OUT.jsonl [--seeds N ...] [--slowest N --of PASS.jsonl] [--random N]
    python -m tests.quality.first_findings compare BEFORE.jsonl AFTER.jsonl

A search ends with the first failure that the engine does not have without the bug, of any law; it is not shrunk.  An
interrupted pass continues with the searches in its file.  Without `--slowest` and `--random` it has all listed bugs.
`--slowest` takes those of another pass, of other seeds: the slowest of the same one would be faster the next time.
"""

import argparse
import json
import random
import signal
import sys
from collections.abc import Sequence
from itertools import groupby
from math import exp, inf, log
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import NamedTuple

from swarden.harness.core.mutant import Mutant
from swarden.harness.core.registry import OWN
from swarden.harness.engines.own.mutants.catalog import CATALOG
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.jobs import JobDeath, run_jobs
from swarden.harness.search.mutants.searches import search_for
from swarden.harness.search.process import prepare_process
from swarden.harness.search.traffic.profiles import PROFILES

MOST_SECONDS = 30.0  # of CPU, of one search
HUNG_SECONDS = 60.0  # of one run: it is a finding
LEAST_SECONDS = 0.02  # shorter searches count as long as that
SEED_OF_SAMPLE, FLIPS = 1, 20_000
LISTED = [mutant for mutant in CATALOG if mutant.overlooks is None]


class Search(NamedTuple):
    """A search for a bug from a seed, and its CPU seconds; it has found the bug, or was ended."""

    bug: str
    seed: int
    is_found: bool
    runs: int
    seconds: float

    @property
    def counted(self) -> float:
        """The seconds as they are compared; a bug that was not found counts as if it had been at the end."""
        return max(LEAST_SECONDS, min(MOST_SECONDS, self.seconds))


def search_once(job: tuple[Mutant, int]) -> Search:
    """Search for a planted bug in a process of its own; SIGPROF ends a run that hangs."""
    mutant, seed = job
    start = process_time()
    plan = Plan(OWN, PROFILES["default"], seed, inf, machine=mutant.machine, mutant=mutant.id, model=mutant.model)
    _limit_run()
    try:
        runs, finding = search_for(mutant, plan, MOST_SECONDS, _limit_run)
    except Exception:  # of a part of the engine, or of the capture of its state, because of the bug
        return Search(mutant.id, seed, True, 0, round(process_time() - start, 3))
    seconds = process_time() - start if finding is None else finding.found_cpu_seconds
    return Search(mutant.id, seed, finding is not None, runs, round(seconds, 3))


def _limit_run() -> None:
    signal.setitimer(signal.ITIMER_PROF, HUNG_SECONDS)


def searches_in(path: Path) -> list[Search]:
    """The searches of a file; [] without one."""
    return [Search(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def search_all(out: Path, mutants: Sequence[Mutant], seeds: Sequence[int]) -> None:
    """Append each search that the file does not have.

    A bug has seeds of its own: with the same ones all searches have the same runs, and all gain by a lucky one.
    """
    prepare_process()
    Worker(Plan(OWN, PROFILES["smoke"], 0, inf, max_runs=4), lambda _: None).work()  # the tables of Hypothesis
    done = {(one.bug, one.seed) for one in searches_in(out)}
    own = {(mutant.id, seed): len(LISTED) * seed + LISTED.index(mutant) for mutant in mutants for seed in seeds}
    jobs = [(one, own[one.id, seed]) for seed in seeds for one in mutants if (one.id, own[one.id, seed]) not in done]
    with out.open("a") as file:
        for (mutant, seed), ended in run_jobs(jobs, search_once, workers=1):
            if isinstance(ended, JobDeath) and not ended.has_hung:
                sys.exit(f"{mutant.id} seed {seed}: {ended}")
            found = Search(mutant.id, seed, True, 0, ended.cpu_seconds) if isinstance(ended, JobDeath) else ended
            file.write(f"{json.dumps(found)}\n")
            file.flush()


def chosen(slowest: int, passed: Path | None, sampled: int) -> list[Mutant]:
    """The slowest bugs of a pass and a random sample of the others; all without numbers."""
    if not slowest and not sampled:
        return LISTED
    seconds = {one.bug: one.counted for one in searches_in(passed)} if passed is not None else {}
    slow = sorted(LISTED, key=lambda mutant: -seconds.get(mutant.id, 0.0))[:slowest]
    return slow + random.Random(SEED_OF_SAMPLE).sample([one for one in LISTED if one not in slow], sampled)


def compare(before: Sequence[Search], after: Sequence[Search]) -> list[str]:
    """A line for each figure of the searches that both have."""
    then, now = ({(one.bug, one.seed): one for one in searches} for searches in (before, after))
    common = sorted(then.keys() & now.keys())
    ratios = [
        fmean(log(now[name].counted / then[name].counted) for name in names)
        for _, names in groupby(common, key=lambda name: name[0])
    ]
    draw = random.Random(SEED_OF_SAMPLE)
    flipped = [abs(fmean(ratio * draw.choice((-1, 1)) for ratio in ratios)) for _ in range(FLIPS)]
    chance = (1 + sum(one >= abs(fmean(ratios)) for one in flipped)) / (1 + FLIPS)
    return [
        f"{len(common)} searches for {len(ratios)} bugs",
        *(
            f"{name}: found {sum(one.is_found for one in each)}, geometric mean {_mean(each):.3f} s, "
            f"90 % within {_within(0.9, each)}, 95 % {_within(0.95, each)}, 99 % {_within(0.99, each)}"
            for name, each in (("before", [then[one] for one in common]), ("after", [now[one] for one in common]))
        ),
        f"ratio of the geometric means {exp(fmean(ratios)):.3f}; two-sided p = {chance:.4f} by flips of the signs",
    ]


def _mean(searches: Sequence[Search]) -> float:
    return exp(fmean(log(one.counted) for one in searches))


def _within(share: float, searches: Sequence[Search]) -> str:
    """The seconds within which this share of the searches has found its bug."""
    found = sorted(one.counted for one in searches if one.is_found)
    place = -int(-share * len(searches) // 1)
    return f"{found[place - 1]:.1f} s" if place <= len(found) else "not found"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    searcher = commands.add_parser("search")
    searcher.add_argument("out", type=Path)
    searcher.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    searcher.add_argument("--slowest", type=int, default=0)
    searcher.add_argument("--of", type=Path, dest="passed")
    searcher.add_argument("--random", type=int, default=0, dest="sampled")
    comparer = commands.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "search":
        search_all(given.out, chosen(given.slowest, given.passed, given.sampled), given.seeds)
        return
    sys.stdout.write("\n".join([*compare(searches_in(given.before), searches_in(given.after)), ""]))


if __name__ == "__main__":
    main()
