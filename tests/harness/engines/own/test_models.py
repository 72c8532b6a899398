"""Tiny models behind the port: results with pages equal the results without a cache."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.ops import Abort, Drain, Inject, Recipe, Step, Submit
from swarden.harness.engines.own.models import FAMILIES, VOCABULARY, tiny_model
from swarden.invariants.events import Compared, Read, Written
from tests.engine_under_test.model.dense import dense_logits
from tests.harness.driving import own_driver

BOTH = EngineConfig(
    page_size=2, full_pages=40, swa_pages=14, sliding_window=5, max_running_requests=3, chunk_len=7, overlap=True
)
FULL = EngineConfig(page_size=4, full_pages=24, chunk_len=7, mixed_batches=True)
SWA = EngineConfig(page_size=2, full_pages=0, swa_pages=14, sliding_window=8, chunk_len=7)
STATES = replace(FULL, state_pages=12, state_interval=8, draft_tokens=2, lookahead_tokens=2, state_slots=4)
THREE = replace(BOTH, state_pages=12, state_interval=BOTH.page_size)
CONFIGS = {"both": BOTH, "full": FULL, "swa": SWA, "states": STATES, "all three": THREE}
LONG = Submit(recipe=Recipe(path=(0, 1, 2), stretch=7), max_new_tokens=12)
OPS = (
    LONG,
    Submit(recipe=Recipe(path=(0, 1), stretch=7, cut=3), max_new_tokens=9),
    Step(count=6),
    Inject(fault="forward.fails", skip=1, count=1),
    LONG,
    Step(count=4),
    Abort(request=1),
    Submit(recipe=Recipe(path=(1,), continues=0), max_new_tokens=6),
    Drain(),
)


def driven(model, config, *ops):
    """A driver after these ops, and the emitted events."""
    events: list[NamedTuple] = []
    driver = own_driver("engine", [config], model=model, observe=lambda change: events.extend(change.events))
    for op in ops:
        driver.apply(op)
    return driver, events


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("model", FAMILIES)
def test_logits_of_a_healthy_engine_equal_those_without_a_cache(model, config):
    """The run has chunks, a failed pass, shared prefixes and an abort."""
    driver, events = driven(model, config, *OPS)

    compared = [event for event in events if isinstance(event, Compared)]
    assert driver.failure is None
    assert len(compared) > 20
    assert max(event.difference for event in compared if event.difference is not None) < 1e-12


def test_model_pass_emits_written_events_and_no_read_events():
    _, events = driven("tiny-gemma3", BOTH, LONG, Step(count=2))

    written = [event[:5] for event in events if isinstance(event, Written)]
    assert written == [(1, 1, "full", 0, 6), (1, 1, "swa", 0, 6)]
    assert not any(isinstance(event, Read) for event in events)


def test_laws_about_tags_do_not_apply_to_a_model_and_those_about_logits_do():
    driver, _ = driven("tiny-gemma3", BOTH, LONG, Drain())

    tally = driver.counts.tally
    for name in ("slots_hold_their_prefix", "reads_cover_the_window", "outputs_match_reference"):
        assert (tally[name].evaluated, tally[name].not_applicable > 0) == (0, True)
    for name in ("logits_match_uncached_model", "outputs_match_uncached_model"):
        assert (tally[name].evaluated > 0, tally[name].not_applicable) == (True, 0)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        pytest.param(BOTH, ["sliding", "full", "sliding"], id="both"),
        pytest.param(FULL, ["full"] * 3, id="full"),
        pytest.param(SWA, ["sliding"] * 3, id="swa"),
        pytest.param(STATES, ["recurrent", "full", "recurrent"], id="states"),
        pytest.param(THREE, ["recurrent", "sliding", "full"], id="all three"),
    ],
)
def test_layers_of_a_model_match_the_pools(config, kinds):
    spec = tiny_model("tiny-mistral", config).decoder.spec

    assert [layer.kind for layer in spec.layers] == kinds
    assert spec.sliding_window == config.sliding_window


@pytest.mark.parametrize("model", FAMILIES)
def test_padded_batch_without_a_cache_equals_the_decoder_alone(model):
    """The two implementations of attention share no code."""
    decoder, without_cache = tiny_model(model, THREE)
    sequences = [[(5 * place + 7 * index) % VOCABULARY for place in range(9 + 8 * index)] for index in range(3)]

    without_cache.remember(sequences)

    with torch.inference_mode():
        for tokens in sequences:
            alone = dense_logits(decoder, torch.tensor(tokens))
            assert (without_cache.logits(tokens, 2) - alone[2:]).abs().max() < 1e-12
