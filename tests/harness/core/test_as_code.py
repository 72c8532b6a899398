"""Op-logs as code: running the code gives the same engines and the same ops."""

from hypothesis import given, settings
from hypothesis import strategies as st

from swarden import kit
from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Recipe, Step, Submit
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.search.findings import log_code
from tests.harness.some_ops import any_ops

CONFIG = EngineConfig(page_size=4, swa_pages=6, sliding_window=8, new_token_ratio=0.25)


def run_code(log: OpLog) -> OpLog:
    """Evaluate the code of a log with only the names that a generated test imports."""
    names = {"Header": kit.Header, "OpLog": kit.OpLog, "ops": kit.ops}
    again: OpLog = eval(log_code(log), {"__builtins__": {}}, names)
    return again


@settings(derandomize=True, database=None, deadline=None)
@given(st.lists(any_ops(), min_size=1, max_size=8))
def test_code_gives_the_same_ops(some):
    log = OpLog(Header(engine=OWN, configs=[{}]), some)

    assert run_code(log).ops == some


def test_code_gives_the_same_engines():
    target = target_of(OWN)
    log = OpLog(Header(engine=OWN, machine="engine", configs=[CONFIG.to_mapping()] * 2, mutant="B18"), [Drain()])

    header = run_code(log).header

    assert (header.engine, header.machine, header.mutant) == (OWN, "engine", "B18")
    assert [target.decode(config) for config in header.configs] == [CONFIG, CONFIG]


def test_each_op_is_a_line_without_arguments_at_their_defaults():
    log = OpLog(
        Header(engine=OWN, configs=[{}, {}]),
        [
            Submit(recipe=Recipe(path=(0, 1)), max_new_tokens=3),
            *[Step(engine=1, count=2)] * 60,
            Submit(recipe=Recipe()),
        ],
    )

    lines = [line.strip() for line in log_code(log).splitlines()]

    assert lines.count("ops.Step(engine=1, count=2),") == 60
    assert "ops.Submit(recipe=ops.Recipe(path=(0, 1)), max_new_tokens=3)," in lines
    assert "ops.Submit()," in lines
