"""A seeded sample of small changes of the engine's code, each run under recorded random traffic.

    python -m tests.quality.mutation [FOLDER ...] [--count N] [--seed N] [--runs N] [--seconds S] [--workers N]

An interrupted sample continues with the results in `--out`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from swarden.harness.core.registry import OWN, target_of
from swarden.harness.search.process import prepare_process
from tests.quality.mutation.corpus import recorded
from tests.quality.mutation.generate import sample
from tests.quality.mutation.results import Conditions, Results, Tried, summary
from tests.quality.mutation.trial import trials

ROOT = Path(__file__).resolve().parents[3]  # above the packages
FOLDERS = ["engine_under_test/pools", "engine_under_test/cache", "engine_under_test/scheduler"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="folders of the engine")
    parser.add_argument("--count", type=int, default=300, help="number of mutations")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample and of the traffic")
    parser.add_argument("--runs", type=int, default=150, help="random runs of one engine; others are added")
    parser.add_argument("--seconds", type=float, default=20.0, help="maximum CPU seconds per mutation")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--out", type=Path, default=Path(".swarden/mutations.jsonl"), help="file for the results")
    given = parser.parse_args()
    prepare_process()
    build = target_of(OWN).source_hash()
    mutations = sample(ROOT, given.folders, count=given.count, seed=given.seed)
    results = Results(given.out, Conditions(build, given.seed, given.runs, given.seconds))
    left = results.left(mutations)
    corpus = recorded(
        given.out.with_name(f"corpus-{build}-{given.seed}-{given.runs}"), runs=given.runs, seed=given.seed
    )
    if corpus.num_failed:
        _log(f"{corpus.num_failed} runs fail without any change, and were skipped")
    tried = trials(left, corpus.kept, seconds=given.seconds, workers=given.workers, out=given.out.parent)
    for number, trial in enumerate(tried, start=1):
        _log(f"{number} of {len(left)}: {_line(results.add(trial))}")
    figures: dict[str, Any] = summary(results.of(mutations))
    sys.stdout.write(f"{json.dumps(figures, indent=2)}\n")


def _line(tried: Tried) -> str:
    verdict = f"killed by {tried.killed_by}" if tried.killed_by else tried.equivalent or "survived"
    return f"{tried.id} {tried.path}:{tried.line} {tried.place}: {verdict}"


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
