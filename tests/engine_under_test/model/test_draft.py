"""A draft model proposes its own likeliest tokens, and does not change the output."""

from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.model import draft
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.draft import MIN_CAPACITY, DraftModel, draft_model
from swarden.engine_under_test.model.runner import ModelForward, fitted
from swarden.engine_under_test.model.tiny import tiny_spec
from swarden.engine_under_test.ports import Ports, Proposer, Wanted
from swarden.engine_under_test.sampling import GREEDY, SamplingParams
from tests.engine_under_test.model.checkpoints import some_tokens, write_checkpoint
from tests.engine_under_test.model.dense import dense_logits
from tests.engine_under_test.model.device import DEVICE

PROMPTS = [some_tokens(count, seed=count).tolist() for count in (5, 17, 30)]
WAYS = {
    "likeliest": SamplingParams(20),
    "drawn": SamplingParams(20, temperature=1.0, seed=3),
    "drawn among few": SamplingParams(20, temperature=0.7, top_k=5, top_p=0.8),
}


def decoder(family: str = "gemma3", seed: int = 7, **changes: object) -> Decoder:
    return random_decoder(tiny_spec(family, **changes), seed, torch.float64, DEVICE)


def greedy_tokens(model: Decoder, tokens: list[int], count: int) -> list[int]:
    """The likeliest tokens of a model without a cache."""
    sequence = list(tokens)
    with torch.inference_mode():
        for _ in range(count):
            sequence.append(int(dense_logits(model, torch.tensor(sequence, device=DEVICE))[-1].argmax()))
    return sequence[len(tokens) :]


def drafts_of(proposer: DraftModel, tokens: list[int], *, most: int = 4) -> list[int]:
    [drafts] = proposer.propose([Wanted(1, 0, tokens, most)])
    return drafts


@pytest.mark.parametrize("family", ["gemma3", "mistral", "gpt-oss", "bamba"])
def test_drafts_are_the_likeliest_tokens_of_the_model(family):
    model = decoder(family)

    assert drafts_of(DraftModel(model), PROMPTS[1]) == greedy_tokens(model, PROMPTS[1], 4)


@pytest.mark.parametrize("family", ["gemma3", "recurrent-gemma"])
def test_drafts_of_a_growing_request_equal_those_without_a_cache(family):
    model = decoder(family)
    proposer = DraftModel(model)
    tokens = list(PROMPTS[1])
    for step in range(MIN_CAPACITY):
        drafts = drafts_of(proposer, tokens, most=2)
        assert drafts == greedy_tokens(model, tokens, 2)
        tokens += [drafts[0], (drafts[1] + step) % 100 + 3]  # the second is accepted in some steps


def test_drafts_of_a_long_prompt_in_chunks_equal_those_without_a_cache(monkeypatch):
    """The capacity passes the reserved rotations."""
    monkeypatch.setattr(draft, "CHUNK_LEN", 100)
    model = decoder(max_position_embeddings=2048)
    tokens = some_tokens(1018).tolist()
    proposer = DraftModel(model)
    for _ in range(3):
        drafts = drafts_of(proposer, tokens, most=3)
        tokens += drafts

    assert tokens[1018:] == greedy_tokens(decoder(max_position_embeddings=2048), tokens[:1018], 9)


@pytest.mark.parametrize("kept", [1, 3, 32])
def test_drafts_after_a_rejection_equal_those_without_a_cache(monkeypatch, kept):
    """Without a state at the last common token the sequence is computed anew."""
    monkeypatch.setattr(draft, "KEPT_STATES", kept)
    model, tokens = decoder("recurrent-gemma"), PROMPTS[1]
    proposer = DraftModel(model)
    for _ in range(3):
        drafts = drafts_of(proposer, tokens)
        tokens = [*tokens, drafts[0], drafts[1], 100]

    assert drafts_of(proposer, tokens) == greedy_tokens(model, tokens, 4)


def test_forgotten_request_starts_anew():
    proposer = DraftModel(decoder())
    drafts_of(proposer, PROMPTS[1])
    proposer.forget(1)
    proposer.forget(1)

    assert drafts_of(proposer, PROMPTS[0]) == greedy_tokens(decoder(), PROMPTS[0], 4)


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([5, 6, 200], id="a token that is not in the vocabulary"),
        pytest.param([5] * 93, id="longer than the context"),
    ],
)
def test_unsupported_request_gets_no_drafts(tokens):
    assert drafts_of(DraftModel(decoder(max_position_embeddings=96, vocab_size=128)), tokens) == []


def generated(model: Decoder, sampling: SamplingParams, *, proposer: Proposer | None = None, **changes):
    config = EngineConfig(page_size=4, full_pages=60, max_running_requests=3, max_context_len=128, state_slots=6)
    config = fitted(replace(config, **changes), model.spec, source="config.json")
    model.reserve(config.max_context_len)
    engine = create_engine(config, ports=Ports(ModelForward(model), proposer=proposer))
    return engine.generate(PROMPTS, sampling)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@pytest.mark.parametrize("sampling", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", [7, 8], ids=["the same model", "another one"])
@pytest.mark.parametrize("family", ["gemma3", "recurrent-gemma"])
def test_outputs_are_the_same_without_drafts(family, seed, sampling, overlap):
    model = decoder(family)
    plain = generated(model, sampling)

    drafted = generated(
        model, sampling, proposer=DraftModel(decoder(family, seed)), overlap=overlap, draft_tokens=3, lookahead_tokens=3
    )

    assert [generation.token_ids for generation in drafted] == [generation.token_ids for generation in plain]


def test_draft_model_of_a_checkpoint_proposes(tmp_path):
    write_checkpoint(tmp_path, "gemma3")

    proposer = draft_model(tmp_path)

    assert len(drafts_of(proposer, PROMPTS[0])) == 4


def test_draft_that_is_not_in_the_vocabulary_is_dropped():
    """The vocabulary of the draft model may be larger."""

    class Foreign:
        def propose(self, wanted):
            return [[7, 10_000, 8] for _ in wanted]

        def forget(self, request_id):
            """It has no state."""

    model = decoder()

    drafted = generated(model, GREEDY, proposer=Foreign(), draft_tokens=3, lookahead_tokens=3)

    plain = generated(model, GREEDY)
    assert [generation.token_ids for generation in drafted] == [generation.token_ids for generation in plain]
