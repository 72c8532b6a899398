"""Failures that were met before are counted, and most later runs are steered away from them."""

from pathlib import Path

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Abort, Drain, Step, Submit
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import run_log
from swarden.harness.search.result import Finding
from swarden.harness.search.steering import CONFIRMATIONS, UNSTEERED_EVERY, Steering, is_as_far
from swarden.harness.search.verification import Verifier

OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
FINGERPRINT = "requests_are_in_one_queue/request/in_two_queues"


@pytest.fixture(scope="module")
def log() -> OpLog:
    """A failure with a planted bug, which appears at the first step of a chunked prompt."""
    found = load_log(OPLOGS / "B46.oplog")
    failure = run_log(found).failure
    assert failure is not None
    assert failure.fingerprint == FINGERPRINT
    return found


@pytest.fixture
def steering(log) -> Steering:
    """The steering of a worker with one confirmed failure."""
    failures = Steering(Verifier(target_for(log.header), ()))
    for _ in range(CONFIRMATIONS):
        failures.record(Finding(FINGERPRINT, log, 0.0), lambda: None)
    return failures


def header(log, *, steered: bool):
    return msgspec.structs.replace(log.header, seed=0, run=1 if steered else UNSTEERED_EVERY)


def test_steered_run_is_cut_before_the_last_op_of_a_known_trail(steering, log):
    steering.begin_run(header(log, steered=True))

    skipped = [steering.steer(op) for op in (Abort(), Submit(), Submit(), Step(), Submit(), Drain())]

    assert skipped == [False, False, False, True, True, True]


def test_run_that_is_not_steered_follows_the_trail(steering, log):
    steering.begin_run(header(log, steered=False))

    assert not any(steering.steer(op) for op in (Submit(), Step(), Step(), Drain()))


def test_run_of_another_configuration_does_not_follow_the_trail(steering, log):
    other = msgspec.structs.replace(header(log, steered=True), configs=[{"chunk_len": 1024}])
    steering.begin_run(other)

    assert not any(steering.steer(op) for op in (Submit(), Step(), Step(), Drain()))


def test_trail_that_rarely_fails_skips_no_op(steering, log):
    for _ in range(2 * CONFIRMATIONS):
        steering.begin_run(header(log, steered=False))
        assert not any(map(steering.steer, (Submit(), Step())))
        steering.end_run()
    steering.begin_run(header(log, steered=True))

    assert not any(steering.steer(op) for op in (Submit(), Step(), Drain()))


@pytest.mark.parametrize(
    ("default", "mark", "value", "expected"),
    [
        pytest.param(64, 16, 4, True, id="beyond"),
        pytest.param(64, 16, 32, False, id="between"),
        pytest.param(1, 4, 4, True, id="the same upwards"),
        pytest.param(1, 4, 2, False, id="between upwards"),
        pytest.param(True, False, False, True, id="a flag"),
        pytest.param(None, 40, 20, True, id="set, default None"),
        pytest.param(None, 40, None, False, id="not set, default None"),
    ],
)
def test_setting_follows_a_trail_on_the_same_side_of_its_default(default, mark, value, expected):
    assert is_as_far(default, mark, value) is expected
