"""A backtest over releases of the demo's engine, each with another planted bug."""

import json
import shutil

import pytest

from swarden.harness.releases.backtest_results import Cost, Pair, cost_of, pairs_in
from tests.harness.some_targets import TINYSERVE, swarden_in, swarden_with
from tests.harness.some_wheels import wheel

TARGET = f"""
{TINYSERVE}
    def prepare_process(self):
        if self.release in BUGS:
            PLANTED.enter_context(self.mutant(BUGS[self.release]).planted())
            BUGS.pop(self.release)

BUGS = {{  # 1.0.0 has the leak of the demo's engine, and the others a fix of it
    "1.1.0": "abort-before-a-queue-leaks",
    "1.2.0": "one-token-too-many",
    "1.3.0": "one-token-too-many",
}}
"""
BUG = """
first = "1.0.0"
tried = "1.3.0"
effect = "pages are lost"
title = "the leak"
cause = "an abort"
fingerprints = ["{}"]
searched = "2026-11-27"
verdict = "not worth posting"
"""
COSTS = [Cost(part=name, cpu_seconds=seconds) for name, seconds in (("1", 1), ("2", 2), ("3", 4))]
LIMITS = ("--runs", "32", "--seed", "3")


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A folder where tinyserve has four releases, of which two are installed, after a backtest over all of them."""
    folder = tmp_path_factory.mktemp("tested")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    wheel(folder, "helper", "4.0.0")
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0"):
        wheel(folder, "tinyserve", version)
    swarden = swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})
    assert swarden("engines", "install", "tinyserve==1.0.0", "tinyserve==1.3.0").returncode == 0
    run = swarden("backtest", "tinyserve", *LIMITS, "--install")
    assert run.returncode == 1, run.stderr
    return folder, run


@pytest.fixture(scope="module")
def installed(tested, tmp_path_factory):
    """A copy of that folder with all releases installed, so that a pair is judged again without pip."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(tested[0], folder, dirs_exist_ok=True)
    run = swarden_in(folder)("engines", "install", "tinyserve==1.1.0", "tinyserve==1.2.0")
    assert run.returncode == 0, run.stderr
    return folder


def _outcomes(folder):
    pairs = json.loads((folder / ".swarden/backtest/tinyserve/backtest.json").read_text())
    return [[(judged["fingerprint"], judged["outcome"]) for judged in pair["judged"]] for pair in pairs]


def _pairs(folder):
    return pairs_in(folder / ".swarden/backtest/tinyserve/backtest.json")


def test_each_outcome_is_told_apart(tested):
    """The leak of 1.0.0 passes on 1.1.0, where the search meets another leak: it does not count as the awaited fix."""
    folder, run = tested
    moved, found, still = _outcomes(folder)

    assert {outcome for _, outcome in moved} == {"moved"}
    assert {outcome for _, outcome in found} == {"found before its fix"}
    assert {outcome for _, outcome in still} == {"still there"}
    assert run.stdout.splitlines()[-1] == "tinyserve: 1 bug found before the fix, in 3 pairs of releases"
    assert run.stderr.endswith("tinyserve 1.3.0: violated, by the findings that are still there\n")
    assert sorted(path.name for path in (folder / "engines").iterdir() if path.is_dir()) == [
        *("1.0.0", "1.3.0", "packages")
    ]


def test_same_seed_and_runs_give_the_same_logs(tested, installed, tmp_path):
    """Two backtests of one pair of releases, each in a folder without files of an earlier one."""
    folder, _ = tested
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("backtest"))

    run = swarden_in(tmp_path)("backtest", "tinyserve", *LIMITS, "--install", "--from", "1.2.0")

    assert run.returncode == 1, run.stderr
    [again], [*_, pair] = _pairs(tmp_path), _pairs(folder)
    assert again.judged == pair.judged  # with the hashes of the logs
    assert [(cost.part, cost.runs, cost.ops) for cost in again.costs] == [
        (cost.part, cost.runs, cost.ops) for cost in pair.costs
    ]


def test_results_that_ship_are_printed_again(tested, tmp_path):
    folder, run = tested
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    swarden = swarden_in(tmp_path)
    none = swarden("backtest", "tinyserve", "--shipped")
    shutil.copy(tmp_path / ".swarden/backtest/tinyserve/backtest.json", tmp_path)

    assert (none.returncode, len(none.stderr.splitlines())) == (2, 1)
    assert swarden("backtest", "tinyserve", "--shipped").stdout == run.stdout


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        pytest.param([*LIMITS, "--runs", "7"], "is of a backtest with", id="another-budget"),
        pytest.param([*LIMITS, "--cpu-minutes", "1"], "--runs and --cpu-minutes: want one of them", id="two-limits"),
        pytest.param([*LIMITS, "--from", "9.9.9"], "--from 9.9.9: is not installed", id="unknown"),
        pytest.param([*LIMITS, "--from", "1.3.0"], "1.3.0: want at least two releases", id="one-release"),
    ],
)
def test_backtest_that_cannot_run_is_refused_in_one_line(tested, tmp_path, limits, told):
    shutil.copytree(tested[0], tmp_path, dirs_exist_ok=True)

    run = swarden_in(tmp_path)("backtest", "tinyserve", *limits)

    assert run.returncode == 2
    assert told in run.stderr.splitlines()[-1]


def _judged_again(folder, tmp_path, pair, change):
    """The outcomes and reasons of a pair that is judged again: the backtest goes on from its files, after a change."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    results = tmp_path / ".swarden/backtest/tinyserve"
    (results / f"{pair}.json").unlink()
    change(results)
    run = swarden_in(tmp_path)("backtest", "tinyserve", *LIMITS, "--install")
    assert run.returncode in (0, 1), run.stderr
    return {(case["outcome"], case["why"]) for case in json.loads((results / f"{pair}.json").read_text())["judged"]}


def _edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fault", "judged"),
    [
        pytest.param("target/capture/KeyError", ("not judged", "the search with seed 4: boom"), id="in-a-run"),
        pytest.param("target/build/ValueError", ("found before its fix", ""), id="before-the-run"),
    ],
)
def test_search_whose_runs_the_adapter_has_ended_shows_nothing(installed, tmp_path, fault, judged):
    def change(results):
        _edit(results / "1.2.0/search-4.json", faults={fault: "boom"})

    assert _judged_again(installed, tmp_path, "1.1.0--1.2.0", change) == {judged}


def test_failure_of_a_known_bug_with_the_same_fingerprint_is_a_move(installed, tmp_path):
    """On 1.2.0 the tree has a fix for a bug with the fingerprint of the finding: its failures are counted as known."""

    def change(results):
        [finding] = json.loads((results / "1.1.0/frozen.json").read_text())["findings"]
        (tmp_path / "findings").mkdir()
        (tmp_path / "findings/the-leak.toml").write_text(BUG.format(finding["fingerprint"]))
        _edit(results / "1.2.0/search-4.json", known=["the-leak"])

    judged = _judged_again(installed, tmp_path, "1.1.0--1.2.0", change)

    assert judged == {("moved", "its log passes, but the search with seed 4 meets the-leak")}


@pytest.mark.parametrize(
    ("pair", "known"),
    [pytest.param("1.1.0--1.2.0", "the-leak", id="passes-there"), pytest.param("1.0.0--1.1.0", "", id="fails-there")],
)
def test_bug_is_known_if_the_op_log_of_the_tree_passes_there_too(installed, tmp_path, pair, known):
    """The log of the first pair is that of a bug that 1.1.0 has as well, so its finding has moved."""

    def change(results):
        path = results / pair.partition("--")[0] / "frozen.json"
        [finding] = json.loads(path.read_text())["findings"]
        (tmp_path / "findings").mkdir()
        (tmp_path / "findings/the-leak.toml").write_text(BUG.format(finding["fingerprint"]))
        shutil.copy(path.with_name(finding["log"]), tmp_path / "findings/the-leak.oplog")
        _edit(path, findings=[finding | {"namesakes": ["the-leak"]}])

    _judged_again(installed, tmp_path, pair, change)

    [judged] = json.loads((tmp_path / f".swarden/backtest/tinyserve/{pair}.json").read_text())["judged"]
    assert judged["bug"] == known


def test_log_that_fails_by_the_same_law_in_another_way_has_moved(installed, tmp_path):
    def change(results):
        path = results / "1.2.0/frozen.json"
        findings = json.loads(path.read_text())["findings"]
        _edit(path, findings=[finding | {"fingerprint": finding["fingerprint"] + "_otherwise"} for finding in findings])

    assert {outcome for outcome, _ in _judged_again(installed, tmp_path, "1.2.0--1.3.0", change)} == {"moved"}


def test_search_that_two_pairs_have_in_common_costs_once(tested):
    pairs = [Pair(old=old, new=new, costs=costs) for old, new, costs in (("1", "2", COSTS[:2]), ("2", "3", COSTS[1:]))]

    assert [cost_of(one).cpu_seconds for one in ([pairs[0]], [pairs[1]], pairs)] == [3, 6, 7]
    all_row = tested[1].stdout.splitlines()[-3]
    assert all_row.split("|")[-2:-1] == [f" {cost_of(_pairs(tested[0])).ops} "]


def test_runs_replace_the_cpu_time(tested):
    budget = json.loads((tested[0] / ".swarden/backtest/tinyserve/budget.json").read_text())

    assert (budget["cpu_seconds"], budget["max_runs"]) == (None, 32)


def test_changed_adapter_is_refused(installed, tmp_path):
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "some_target.py").open("a") as source:
        source.write("# another build\n")

    run = swarden_in(tmp_path)("backtest", "tinyserve", *LIMITS, "--install")

    assert run.returncode == 2
    assert "is of a backtest with" in run.stderr.splitlines()[-1]


def test_changed_log_is_refused(installed, tmp_path):
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / ".swarden/backtest/tinyserve"
    (folder / "1.1.0--1.2.0.json").unlink()
    [finding, *_] = json.loads((folder / "1.1.0/frozen.json").read_text())["findings"]
    (folder / "1.1.0" / finding["log"]).write_text("")

    run = swarden_in(tmp_path)("backtest", "tinyserve", *LIMITS, "--install")

    assert run.returncode == 2
    assert "was changed after it was frozen" in run.stderr
