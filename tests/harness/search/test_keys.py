"""Failures with one fingerprint that no fix cures are kept apart by the statements behind them."""

from contextlib import ExitStack, contextmanager

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.patch import Hunk, Patch
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.replay import run_log
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.keys import NO_KEY, Key, is_of, key_of, kind_of
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.traffic.profiles import PROFILES

SCHEDULER = "swarden.engine_under_test.scheduler.scheduler:Scheduler"
ADMISSION = "swarden.engine_under_test.scheduler.admission:Admission"
NO_ROW = "if not self._memory.table.rows.num_free or budget.tokens <= 0:"
WISH = "    wish = self._wish(request, budget)\n    if wish.shared"
KNOWN = Hunk(f"{ADMISSION}.plan_new", NO_ROW, NO_ROW.replace(":", " or len(request.tokens) % 7 == 3:"))
ALONE = "    if alone:\n        self.custody"
EVICT = "    if not self._evict"
PLANTED = {  # each leaves a request out for ever
    "wish": (f"{ADMISSION}.plan_new", "if wish.shared is not None", "if request.id or wish.shared is not None"),
    "guard": (f"{ADMISSION}.plan_new", WISH, f"    if request.tokens_left > 3:\n        return None\n{WISH}"),
    "capacity": (f"{ADMISSION}.plan_chunk", "if min(capacity, budget.tokens) <= 0:", "if min(capacity, 1) <= 64:"),
    "order": (f"{ADMISSION}.in_order", "return waiting.in_order()", "return waiting.in_order()[1:]"),
    "queue": (f"{SCHEDULER}._prefill", "not len(self.waiting)", "len(self.waiting) < 2"),
    "begun": (f"{SCHEDULER}._has_begun", "request is self.chunked or request", "request"),
    "chunk": (f"{SCHEDULER}._plan_chunk", ALONE, f"    if budget:\n        return None\n{ALONE}"),
    "pause": (f"{SCHEDULER}._plan", "if not entries and", "if not entries and self.is_paused and"),
    "decode": (f"{SCHEDULER}._free_decode_pages", EVICT, f"    if self.running:\n        return False\n{EVICT}"),
    "clock": (f"{SCHEDULER}.step", "and not self.is_paused else", "and now_ms < 0 else"),
}
LOG = OpLog(
    Header(engine=OWN, configs=[{**target_of(OWN).defaults, "chunk_len": 16}]),
    [Submit(tokens=tuple(range(1, 39)), max_new_tokens=4), Step(count=8), Step(count=8)],
)


@contextmanager
def planted(*hunks: Hunk):
    with ExitStack() as stack:
        for number, hunk in enumerate(hunks):
            stack.enter_context(Patch(f"bug {number}", (hunk,)).planted())
        yield


def key_with(hunk: Hunk) -> Key:
    with planted(hunk):
        failure = run_log(LOG).failure
        assert failure is not None
        return key_of(LOG, failure, lambda: None)


def test_each_of_ten_planted_hangs_has_a_key_of_its_own_beside_a_known_one():
    known = key_with(KNOWN)
    keys = {name: key_with(Hunk(*hunk)) for name, hunk in PLANTED.items()}

    assert NO_KEY not in keys.values()
    assert len({known, *keys.values()}) == 11
    assert [name for name, key in keys.items() if is_of(key, known)] == []


def test_key_has_no_line_number():
    assert key_with(KNOWN) == key_with(Hunk(KNOWN.at, KNOWN.before, f"pass\n    pass\n    {KNOWN.after}"))


def test_new_hang_beside_an_old_one_is_a_finding_with_its_own_log(tmp_path):
    new = Hunk(f"{ADMISSION}.plan_new", WISH, f"    if request.tokens_left % 5 == 2:\n        return None\n{WISH}")
    plan = Plan(engine=OWN, profile=PROFILES["smoke"], seed=5, max_runs=30, machine="engine", out=tmp_path)

    with planted(KNOWN, new):
        result = Worker(plan, lambda _: None).work()

    waiting = [finding for finding in result.findings.values() if finding.fingerprint.endswith("/kept_waiting")]
    assert [finding.name == finding.fingerprint for finding in waiting].count(True) == 1
    assert all(finding.path is not None and finding.path.exists() for finding in waiting)
    assert len({finding.path for finding in waiting}) == len(waiting) > 1
    assert all(result.tallies.runs_of(finding, waiting) for finding in waiting)


@pytest.mark.parametrize("order", [1, -1], ids=["as-found", "the-other-way-round"])
def test_findings_of_workers_are_one_if_their_keys_are_the_same(order):
    keys = {"a": Key(["a"]), "a and more": Key(["a", "b"]), "c": Key(["c"])}
    findings = [Finding("law/x", LOG, 1.0, key=key) for key in [*keys.values()][::order]]
    result = Result()

    for one in findings:
        result.add(Result(findings={one.name: one}))

    assert len(result.findings) == (2 if order == 1 else 3)
    assert next(iter(result.findings)) == "law/x"


def test_a_fifth_kind_replaces_the_newest_of_four():
    result = Result()
    for name in "abcdef":
        one = Finding("law/x", LOG, 1.0, key=Key([name]))
        result.add(Result(findings={one.name: one}))

    assert [*result.findings] == ["law/x", *(kind_of("law/x", Key([name])) for name in "bcf")]
