"""The evidence that a change of the tree changes no behaviour: made before and after the change, and compared.

    python -m tests.quality.evidence make OUT.json [--quick]
    python -m tests.quality.evidence compare BEFORE.json AFTER.json

`--quick` makes the part that must be equal: digests of random runs, verdicts of op-logs, and the kill matrix.  The full
evidence also has searches for planted bugs, and benchmarks: their costs differ from run to run, and are only shown.
Releases of other engines count where they are installed, as `make test-engines` does.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from swarden.harness.core.admission import load_log
from swarden.harness.core.driver import Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Op
from swarden.harness.core.registry import OWN, UnknownEngine, target_of
from swarden.harness.core.replay import run_log
from swarden.harness.core.target import Target
from swarden.harness.engines.own.mutants.catalog import CATALOG
from swarden.harness.report.story import failure_lines
from swarden.harness.search.process import prepare_process
from swarden.harness.search.search import search, turns_of
from swarden.harness.search.traffic.machine import RunListener

TESTS = Path(__file__).parents[1]
ENGINES = (OWN, "sglang==0.5.12.post1", "sglang==0.5.23", "vllm==0.20.2", "vllm==0.33.0")
OWN_MACHINES = ("engine", "pd")
SEARCHES, RUNS_PER_SEARCH, OPS_PER_RUN = 10, 20, 20  # per machine; the newest release stands for an engine
MUTANTS, MUTANT_SEEDS, WORKERS = 60, 3, 2
HASH_LEN = 8  # hex digits
LINE_NUMBER = re.compile(r"(?<=\.py:)\d+")

Evidence = dict[str, Any]


@dataclass
class Recorder(RunListener):
    """Keeps the hash of each run: of its digests, and of its failure."""

    target: Target
    is_over: bool = False
    runs: list[str] = field(default_factory=list)
    num_ops: int = 0

    def before_op(self, op: Op) -> bool:
        """Whether the run may have a further op; each run ends with a drain."""
        self.num_ops += 1
        return self.num_ops <= OPS_PER_RUN or isinstance(op, Drain)

    def on_op(self, driver: Driver) -> None:
        """Continue the run."""

    def on_end(self, header: Header, driver: Driver) -> None:
        failures = driver.failure.fingerprints if driver.failure is not None else ()
        self.num_ops = 0
        self.runs.append(_hash(json.dumps([header.configs, driver.digests, failures])))


def digests(engine: str, machine: str) -> str:
    """The hashes of random runs, in order, as one text."""
    prepare_process()
    target = target_of(engine)
    target.prepare_process()
    recorder = Recorder(target)
    for seed in range(SEARCHES):
        for traffic in turns_of(target, machine)[:1]:
            search(traffic, recorder, from_seed=seed, max_runs=RUNS_PER_SEARCH)
    return " ".join(recorder.runs)


def verdict(engine: str, path: Path) -> Evidence:
    """The fingerprints of a replay, its last digest, and the hash of its text without numbers of lines."""
    try:
        log = load_log(path, engine=engine)
        driver = run_log(log, keep_digests=True)
    except UsageError as error:
        return {"error": f"{type(error).__name__}"}
    failure = driver.failure
    return {
        "expected": log.header.expected,
        "failures": list(failure.fingerprints) if failure is not None else [],
        "digest": driver.digests[-1] if driver.digests else "",
        "text": _hash(LINE_NUMBER.sub("", "\n".join(map(str, failure_lines(failure))))) if failure is not None else "",
    }


def make(quick: bool) -> Evidence:
    found: Evidence = {"commit": _output("git", "rev-parse", "HEAD").strip()}
    found["matrix"] = _hash(_output(*_swarden("mutants", "matrix")))
    found["digests"], found["verdicts"] = {}, {}
    newest = {engine.partition("==")[0]: engine for engine in ENGINES}
    for engine in filter(_is_installed, ENGINES):
        name = engine.partition("==")[0]
        machines = OWN_MACHINES if engine == OWN else ("engine",) if engine == newest[name] else ()
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as processes:
            runs = {machine: processes.submit(digests, engine, machine) for machine in machines}
            logs = {path: processes.submit(verdict, engine, path) for path in _logs_of(name)}
            found["digests"] |= {f"{engine} {machine}": run.result() for machine, run in runs.items()}
            found["verdicts"] |= {f"{engine} {path.relative_to(TESTS)}": log.result() for path, log in logs.items()}
    if not quick:
        found["searches"] = _searches()
        found["bench"] = json.loads(_output(*_swarden("bench", "--json")))
    return found


def differences(before: Evidence, after: Evidence) -> Iterator[str]:
    """A line for each difference of what must be equal."""
    if before["matrix"] != after["matrix"]:
        yield "the kill matrix differs"
    for kind in ("digests", "verdicts"):
        for name in sorted(before[kind].keys() | after[kind].keys()):
            then, now = (evidence[kind].get(name) for evidence in (before, after))
            if then != now:
                yield f"{kind}, {name}: {_changed(then, now)}"
    then, now = (_by_search(evidence) for evidence in (before, after))
    for name in sorted(then.keys() & now.keys()):
        for key in ("outcome", "law", "runs", "ops"):
            if then[name][key] != now[name][key]:
                yield f"searches, {name}: {key} was {then[name][key]}, is {now[name][key]}"


def costs(before: Evidence, after: Evidence) -> Iterator[str]:
    """A line for each cost, before and after; they were not measured in pairs."""
    then, now = (_costs_of(evidence) for evidence in (before, after))
    for name in then.keys() & now.keys():
        yield f"{name}: {then[name]:.4g} -> {now[name]:.4g}"


def _by_search(evidence: Evidence) -> dict[str, Evidence]:
    return {f"{search['mutant']} seed {search['seed']}": search for search in evidence.get("searches", ())}


def _costs_of(evidence: Evidence) -> dict[str, float]:
    searches = list(_by_search(evidence).values())
    if not searches:
        return {}
    cases = {name: figures for part in evidence["bench"].values() for name, figures in part.items()}
    return {
        "searches, found": sum(search["outcome"] == "found" for search in searches),
        "searches, CPU s": sum(search["search_cpu_seconds"] for search in searches),
        "shrinks, CPU s": sum(search["shrink_cpu_seconds"] for search in searches),
        **{
            f"{name}, {of}": figure
            for name, figures in cases.items()
            for of, figure in figures.items()
            if not isinstance(figure, list)
        },
    }


def _changed(then: object, now: object) -> str:
    """What differs in one entry: the runs by number, or the whole."""
    if isinstance(then, str) and isinstance(now, str):
        pairs = enumerate(zip(then.split(), now.split(), strict=False))
        runs = [str(run) for run, (one, other) in pairs if one != other]
        return f"{len(runs)} runs differ, the first is {runs[0]}" if runs else "the number of runs differs"
    if isinstance(then, dict) and isinstance(now, dict):
        return "; ".join(
            f"{key} was {then.get(key)}, is {now.get(key)}" for key in then if then.get(key) != now.get(key)
        )
    return f"was {then}, is {now}"


def _searches() -> list[Evidence]:
    """The searches for evenly chosen mutants of the catalogue."""
    ids = [mutant.id for mutant in CATALOG[:: len(CATALOG) // MUTANTS]][:MUTANTS]
    with tempfile.TemporaryDirectory() as out:
        text = _output(
            *_swarden(
                "mutants", "run", *ids, f"--seeds={MUTANT_SEEDS}", f"--workers={WORKERS}", f"--out={out}", "--json"
            ),
            may_fail=True,  # a missed mutant
        )
    searches = [search for mutant in json.loads(text)["mutants"] for search in mutant["searches"]]
    return [{key: value for key, value in search.items() if key != "path"} for search in searches]


def _logs_of(engine: str) -> list[Path]:
    folders = ("quality/oplogs", "quality/regressions") if engine == OWN else (f"engines/{engine}",)
    return sorted(path for folder in folders for path in (TESTS / folder).rglob("*.oplog"))


def _is_installed(engine: str) -> bool:
    try:
        target_of(engine)
    except UnknownEngine as error:
        sys.stderr.write(f"left out: {error}\n")
        return False
    return True


def _swarden(*arguments: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("swarden")), *arguments)


def _output(*command: str, may_fail: bool = False) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    if ended.returncode and not may_fail:
        sys.exit(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LEN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("out", type=Path)
    maker.add_argument("--quick", action="store_true")
    comparer = commands.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "make":
        given.out.write_text(json.dumps(make(given.quick), separators=(",", ":"), sort_keys=True) + "\n")
        return
    before, after = (json.loads(path.read_text()) for path in (given.before, given.after))
    found = list(differences(before, after))
    sys.stdout.write("\n".join([*costs(before, after), *found, f"{len(found)} differences\n"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
