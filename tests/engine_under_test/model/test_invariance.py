"""In float64 the output of a request does not depend on chunks, batches, pages or retraction."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.runner import ModelForward, fitted
from swarden.engine_under_test.model.tiny import TINY, tiny_spec
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from tests.engine_under_test.model.checkpoints import some_tokens
from tests.engine_under_test.model.dense import dense_logits, tiny_spec_of_all_kinds
from tests.engine_under_test.model.device import DEVICE

CLOSE = 1e-10
NEW_TOKENS = 10
SHARED = some_tokens(21, seed=1).tolist()
PROMPTS = [SHARED + some_tokens(3 + 5 * number, seed=10 + number).tolist() for number in range(4)]
ALONE = EngineConfig(
    page_size=1,
    full_pages=400,
    max_running_requests=1,
    chunk_len=None,
    max_context_len=128,
    prefix_sharing=False,
    poison_freed_pages=True,
)
WAYS: Mapping[str, dict[str, Any]] = {
    "chunks": {"chunk_len": 5},
    "pages": {"page_size": 4},
    "large pages": {"page_size": 16},
    "batches": {"max_running_requests": 4},
    "prefix hits": {"prefix_sharing": True, "page_size": 4},
    "mixed batches": {"max_running_requests": 4, "mixed_batches": True, "chunk_len": 7},
    "overlap": {"max_running_requests": 4, "overlap": True},
    "all at once": {
        "page_size": 4,
        "chunk_len": 6,
        "max_running_requests": 3,
        "prefix_sharing": True,
        "mixed_batches": True,
        "overlap": True,
    },
}
DRAWN = SamplingParams(NEW_TOKENS, temperature=0.8, top_p=0.9, top_k=40, seed=3, return_logits=True)
GREEDY = SamplingParams(NEW_TOKENS, return_logits=True)


SPECS = {family: tiny_spec(family) for family in TINY} | {"all kinds": tiny_spec_of_all_kinds()}


@pytest.fixture(scope="module", params=SPECS)
def decoder(request) -> Decoder:
    return random_decoder(SPECS[request.param], 1, torch.float64, DEVICE)


def engine_of(decoder: Decoder, config: EngineConfig) -> Engine:
    return Engine(fitted(config, decoder.spec, source="tiny"), Ports(ModelForward(decoder)))


@cache
def alone(decoder: Decoder, prompt: tuple[int, ...], sampling: SamplingParams) -> tuple[list[int], torch.Tensor]:
    """The tokens of a prompt without others, and the logits of a run without a cache at each position."""
    token_ids = engine_of(decoder, ALONE).generate([prompt], sampling)[0].token_ids
    with torch.inference_mode():
        return token_ids, dense_logits(decoder, torch.tensor([*prompt, *token_ids[:-1]], device=DEVICE))


def expect_same(decoder: Decoder, prompt: list[int], generation: Generation, sampling: SamplingParams) -> None:
    """The tokens equal those of the prompt alone, and the logits those of a run without a cache."""
    token_ids, dense = alone(decoder, tuple(prompt), sampling)
    assert generation.token_ids == token_ids
    assert set(generation.logits) >= set(range(len(prompt) - 1, len(dense)))
    for position in range(max(generation.cached_tokens, 0), len(dense)):
        torch.testing.assert_close(generation.logits[position], dense[position], atol=CLOSE, rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_tokens_and_logits_do_not_depend_on_the_configuration(decoder, way):
    engine = engine_of(decoder, replace(ALONE, **WAYS[way]))

    generations = engine.generate(PROMPTS, DRAWN)

    for prompt, generation in zip(PROMPTS, generations, strict=True):
        expect_same(decoder, prompt, generation, DRAWN)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_tokens_and_logits_do_not_depend_on_retraction(decoder, sampling):
    engine = engine_of(decoder, replace(ALONE, **WAYS["all at once"]))
    generations = {engine.submit(prompt, sampling): Generation() for prompt in PROMPTS}
    steps = 0

    while engine.has_work:
        for output in engine.step():
            generations[output.request_id].add(output)
        steps += 1
        pause = {9: engine.pause, 11: engine.resume, 20: engine.pause, 21: engine.resume}
        pause.get(steps, lambda: None)()

    assert steps > 21
    for prompt, generation in zip(PROMPTS, generations.values(), strict=True):
        expect_same(decoder, prompt, generation, sampling)
