"""The shrinker sets each setting that a failure does not need to its default."""

from typing import Any

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.search.shrink.shrink import ShrinkBudget, shrink
from tests.harness.search.shrink.test_shrink import FailedAt, shrunk

SMALL = EngineConfig(page_size=4, full_pages=32, swa_pages=8, sliding_window=8, chunk_len=7, waiting_order="lpm")


def small_pages(log: OpLog) -> Any:
    [engine] = log.header.configs
    return FailedAt(0) if EngineConfig.from_mapping(engine).page_size == 4 else None


def test_coupled_settings_stay_valid():
    def windowed(log: OpLog) -> Any:
        [engine] = log.header.configs
        return small_pages(log) if engine["swa_pages"] == 8 else None

    header = Header(engine=OWN, machine="engine", configs=[SMALL.to_mapping()])

    found = shrunk([Step()], windowed, header)

    expected = EngineConfig(page_size=4, swa_pages=8, sliding_window=8)
    assert found.log.header.configs == [expected.to_mapping()]


def test_fewer_ops_fill_a_smaller_engine():
    def full(log: OpLog) -> Any:
        places = log.header.configs[0]["max_running_requests"]
        return FailedAt(places) if 3 <= places < len(log.ops) else None

    header = Header(engine=OWN, machine="engine", configs=[EngineConfig(max_running_requests=9).to_mapping()])

    assert shrunk([Submit()] * 12, full, header).log.ops == [Submit()] * 4


def test_needless_settings_get_their_defaults_before_the_budget_is_spent():
    header = Header(engine=OWN, machine="engine", configs=[SMALL.to_mapping()])

    def long(log: OpLog) -> Any:
        lengths = {op.max_new_tokens for op in log.ops if isinstance(op, Submit)}
        return FailedAt(len(log.ops) - 1) if len(lengths) > 30 else None

    ops = [Submit(max_new_tokens=length) for length in range(1, 61)]
    found = shrink(OpLog(header, ops), long, ShrinkBudget(executions=100))

    assert (found.complete, found.log.header.configs) == (False, [EngineConfig().to_mapping()])


TOGETHER = EngineConfig(page_size=4, lookahead_tokens=2, draft_tokens=2)  # drafts need a lookahead
ONE_BY_ONE = EngineConfig(page_size=4, chunk_len=7, overlap=True, poison_freed_pages=True)


@pytest.mark.parametrize(
    ("config", "passes"),
    [
        pytest.param(SMALL, lambda _: False, id="each-alone"),
        pytest.param(TOGETHER, lambda one: (one.draft_tokens > 0) != (one.lookahead_tokens > 0), id="together"),
        pytest.param(
            ONE_BY_ONE,
            lambda config: config.overlap > (config.chunk_len == 7) or config.poison_freed_pages > config.overlap,
            id="one-by-one",
        ),
    ],
)
def test_needless_settings_get_their_defaults_also_those_that_are_needed_beside_each_other(config, passes):
    def bug(log: OpLog) -> Any:
        [engine] = log.header.configs
        return None if passes(EngineConfig.from_mapping(engine)) else small_pages(log)

    found = shrunk([Step()], bug, Header(engine=OWN, machine="engine", configs=[config.to_mapping()]))

    assert found.log.header.configs == [EngineConfig(page_size=4).to_mapping()]
