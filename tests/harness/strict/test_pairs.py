"""The strict check of a pair: pages held for the other side are no leak."""

from collections.abc import Callable

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pair import Pair, create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from tests.harness.strict.some_traffic import LEVELS, some_config

PROMPTS = [list(range(first, first + length)) for first, length in enumerate((37, 5, 30, 12, 16, 22))]


def fake_ports() -> Ports:
    return Ports(FakeForward(TagModel(), note=lambda _event: None))


@pytest.fixture(params=LEVELS)
def pair_of(request, monkeypatch, tmp_path) -> Callable[[EngineConfig], Pair]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, request.param)
    return lambda config: create_pair(config, ports=(fake_ports(), fake_ports()))


@pytest.fixture
def pair(pair_of: Callable[[EngineConfig], Pair]) -> Pair:
    return pair_of(some_config(max_running_requests=3))


def step(pair: Pair, count: int) -> None:
    for _ in range(count):
        pair.step()


@pytest.mark.parametrize("settings", [{}, {"state_pages": 6, "state_interval": 8}], ids=["KV", "states"])
def test_healthy_pair_has_no_violation(pair_of, settings):
    """A violation would raise."""
    pair = pair_of(some_config(max_running_requests=3, **settings))

    generations = pair.generate(PROMPTS, SamplingParams(9))

    assert [generation.finish_reason for generation in generations] == ["length"] * len(PROMPTS)
    assert not pair.has_work


def test_leaked_page_of_the_decode_side_is_found(pair):
    """A page of the decode side is missing from the free list without an owner."""
    pair.submit(PROMPTS[0], SamplingParams(9))
    pair.decode.memory.ledgers.anchor._free.popleft()

    with pytest.raises(AssertionError, match=r"pools_conserve_units|unit_has_one_owner|free list"):
        pair.generate([], SamplingParams(9))


def test_stuck_decode_side_is_found_while_a_request_waits_for_a_reservation(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "census")
    pair = create_pair(some_config(max_running_requests=1), ports=(fake_ports(), fake_ports()))
    pair.submit(PROMPTS[1], SamplingParams(40))
    while not pair.decode.scheduler.active:
        pair.step()
    pair.submit(PROMPTS[3], SamplingParams(9))
    monkeypatch.setattr(pair.decode.scheduler, "_plan", list)

    with pytest.raises(AssertionError, match=r"work_makes_progress: .*\n.*with work: request r1 and request r2"):
        step(pair, 9)
