"""KV that was offloaded and restored is unchanged bit for bit, and gives the same outputs."""

from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.runner import ModelForward, fitted
from swarden.engine_under_test.model.tiny import tiny_spec
from swarden.engine_under_test.ports import HostStore, Ports
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import LoadPlanned
from tests.engine_under_test.builders import EventLog
from tests.engine_under_test.model.checkpoints import some_tokens
from tests.engine_under_test.model.dense import tiny_spec_of_all_kinds
from tests.engine_under_test.model.device import DEVICE

CLOSE = 1e-10
PAGE, NUM_PAGES = 4, 60
PROMPT = some_tokens(37, seed=1).tolist()
PROMPTS = [PROMPT, PROMPT[:22] + some_tokens(9, seed=2).tolist(), PROMPT[:13]]
WITHOUT_HOST = EngineConfig(
    page_size=PAGE,
    full_pages=NUM_PAGES,
    state_interval=PAGE,
    max_running_requests=2,
    max_context_len=128,
    chunk_len=16,
    poison_freed_pages=True,
)
SAMPLING = SamplingParams(8, return_logits=True)
POLICIES = ("write_through", "write_through_selective", "write_back")


SPECS = {family: tiny_spec(family) for family in ("gemma3", "gpt-oss", "mistral", "recurrent-gemma", "bamba")}
SPECS["all kinds"] = tiny_spec_of_all_kinds()


@pytest.fixture(scope="module", params=SPECS)
def decoder(request) -> Decoder:
    return random_decoder(SPECS[request.param], 1, torch.float64, DEVICE)


def config_of(decoder: Decoder, config: EngineConfig) -> EngineConfig:
    """The configuration with as many pages in each pool of the model."""
    config = fitted(config, decoder.spec, source="tiny")
    swa_pages, state_pages = (NUM_PAGES if pages else 0 for pages in (config.swa_pages, config.state_pages))
    return replace(config, swa_pages=swa_pages, state_pages=state_pages)


def engine_of(decoder: Decoder, config: EngineConfig, ports: Ports | None = None) -> Engine:
    ports = replace(ports or Ports(), forward=ModelForward(decoder))
    return Engine(config_of(decoder, config), ports)


def engine_with_host(
    decoder: Decoder, policy: str = "write_through", *, log: EventLog | None = None, store: HostStore | None = None
) -> Engine:
    """An engine with twice as many pages on the host as on the device."""
    device = config_of(decoder, WITHOUT_HOST)
    config = replace(
        device,
        host_full_pages=2 * device.full_pages,
        host_swa_pages=2 * device.swa_pages,
        host_state_pages=2 * device.state_pages,
        host_policy=policy,
        load_back_threshold=1,
    )
    return engine_of(decoder, config, Ports(observer=log, host=store))


def serve(engine: Engine) -> list[Generation]:
    """Serve the prompts one after the other, each after the copies of the one before."""
    generations = []
    for prompt in PROMPTS:
        generations += engine.generate([prompt], SAMPLING)
        rest(engine)
    return generations


def rest(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def demote(engine: Engine) -> None:
    """Evict everything from the device, with copies on the host where there is space."""
    assert engine.host is not None, "no pools on the host"
    engine.host.make_room({pool.name: pool.num_pages for pool in engine.config.pools})


def kv_of(engine: Engine, tokens: list[int]) -> dict[str, torch.Tensor]:
    """By pool, the bits of the pages that a match of `tokens` reads."""
    match, memory = engine.cache.match(tokens, 0), engine.memory
    bits = {}
    for pool, length in zip(memory.pools, engine.cache.tree.covered_lens(match.length), strict=True):
        pages = memory.ledgers.pages_of(pool.name, match.handles)[-length // PAGE :]
        kv = memory.store.kv(pool.name).index_select(
            memory.store.page_dim(pool.name), torch.tensor(pages, device=DEVICE)
        )
        bits[pool.name] = kv.view(torch.int64)
    return bits


def expect_same(answers: list[Generation], expected: list[Generation]) -> None:
    """The same tokens, and the same logits at each position that both computed, which include all outputs."""
    for answer, wanted, prompt in zip(answers, expected, PROMPTS, strict=True):
        assert answer.token_ids == wanted.token_ids
        both = answer.logits.keys() & wanted.logits.keys()
        assert both >= set(range(len(prompt) - 1, len(prompt) + len(wanted.token_ids) - 1))
        for position in both:
            torch.testing.assert_close(answer.logits[position], wanted.logits[position], atol=CLOSE, rtol=0)


def test_restored_kv_is_equal_bit_for_bit(decoder):
    engine = engine_with_host(decoder)
    serve(engine)
    before = kv_of(engine, PROMPT)
    demote(engine)
    cached = engine.cache.match(PROMPT, 0).length

    engine.generate([PROMPT], SAMPLING)

    after = kv_of(engine, PROMPT)
    assert cached == 0
    assert {pool: (bits.shape, torch.equal(bits, after[pool])) for pool, bits in before.items()} == {
        pool: (bits.shape, True) for pool, bits in after.items()
    }


def test_offloaded_kv_is_not_on_the_device(decoder):
    engine = engine_with_host(decoder)
    serve(engine)

    demote(engine)

    for pool in engine.memory.pools:
        pages = engine.memory.store.kv(pool.name).transpose(0, engine.memory.store.page_dim(pool.name))
        used = pages[1:].abs().nan_to_num(1.0).flatten(1).any(1)
        assert pages[1:][used].isnan().all()


@pytest.mark.parametrize("policy", POLICIES)
def test_outputs_after_a_restore_are_the_same(decoder, policy):
    log = EventLog()
    engine = engine_with_host(decoder, policy, log=log)
    expected = serve(engine_of(decoder, WITHOUT_HOST))
    serve(engine)
    serve(engine)
    demote(engine)

    answers = serve(engine)

    assert len(log.of(LoadPlanned)) == len(PROMPTS)
    assert answers[0].cached_tokens == 36
    expect_same(answers, expected)
