"""A draft model: it says what it would say itself, and the output stays what it is without it."""

import pytest
import torch

from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from engine_under_test.model import draft
from engine_under_test.model.decoder import Decoder, dense_logits, random_decoder
from engine_under_test.model.draft import MIN_CAPACITY, DraftModel, draft_model
from engine_under_test.model.runner import ModelForward, fitted
from engine_under_test.model.tiny import tiny_spec
from engine_under_test.ports import Ports, Proposer, Wanted
from engine_under_test.sampling import GREEDY, SamplingParams
from tests.engine_under_test.model.checkpoints import some_tokens, write_checkpoint

PROMPTS = [some_tokens(count, seed=count).tolist() for count in (5, 17, 30)]
WAYS = {
    "likeliest": SamplingParams(20),
    "drawn": SamplingParams(20, temperature=1.0, seed=3),
    "drawn among few": SamplingParams(20, temperature=0.7, top_k=5, top_p=0.8),
}


def decoder(family: str = "gemma3", seed: int = 7, **changes: object) -> Decoder:
    return random_decoder(tiny_spec(family, **changes), seed, torch.float64)


def said_alone(model: Decoder, tokens: list[int], count: int) -> list[int]:
    """What a model says without any cache."""
    said = list(tokens)
    with torch.inference_mode():
        for _ in range(count):
            said.append(int(dense_logits(model, torch.tensor(said))[-1].argmax()))
    return said[len(tokens) :]


def guess(proposer: DraftModel, tokens: list[int], *, most: int = 4) -> list[int]:
    [drafts] = proposer.propose([Wanted(1, 0, tokens, most)])
    return drafts


@pytest.mark.parametrize("family", ["gemma3", "mistral", "gpt-oss"])
def test_it_guesses_what_it_would_say_itself(family):
    model = decoder(family)

    assert guess(DraftModel(model), PROMPTS[1]) == said_alone(model, PROMPTS[1], 4)


def test_it_reads_on_from_what_it_has_read():
    model = decoder()
    proposer = DraftModel(model)
    tokens = list(PROMPTS[1])
    for step in range(MIN_CAPACITY):
        drafts = guess(proposer, tokens, most=2)
        assert drafts == said_alone(model, tokens, 2)
        tokens += [drafts[0], (drafts[1] + step) % 100 + 3]  # the second is right or wrong


def test_a_long_prompt_is_read_piece_by_piece(monkeypatch):
    """And no context is too long for its rotations, however much room was made for it."""
    monkeypatch.setattr(draft, "CHUNK_LEN", 100)
    model = decoder(max_position_embeddings=2048)
    tokens = some_tokens(1018).tolist()
    proposer = DraftModel(model)
    for _ in range(3):
        drafts = guess(proposer, tokens, most=3)
        tokens += drafts

    assert tokens[1018:] == said_alone(decoder(max_position_embeddings=2048), tokens[:1018], 9)


def test_who_has_ended_is_forgotten():
    proposer = DraftModel(decoder())
    guess(proposer, PROMPTS[1])
    proposer.forget(1)
    proposer.forget(1)

    assert guess(proposer, PROMPTS[0]) == said_alone(decoder(), PROMPTS[0], 4)


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([5, 6, 200], id="a token that it does not know"),
        pytest.param([5] * 93, id="more than it has positions for"),
    ],
)
def test_of_what_it_cannot_read_it_guesses_nothing(tokens):
    assert guess(DraftModel(decoder(max_position_embeddings=96, vocab_size=128)), tokens) == []


def generated(model: Decoder, sampling: SamplingParams, *, proposer: Proposer | None = None, **changes):
    config = EngineConfig(page_size=4, full_pages=60, max_running_requests=3, max_context_len=128, **changes)
    config = fitted(config, model.spec, source="config.json")
    model.reserve(config.max_context_len)
    engine = create_engine(config, ports=Ports(ModelForward(model), proposer=proposer))
    return engine.generate(PROMPTS, sampling)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@pytest.mark.parametrize("sampling", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", [7, 8], ids=["the same model", "another one"])
def test_outputs_are_those_without_drafts(seed, sampling, overlap):
    """Token for token, likeliest or drawn, however good the guesses are."""
    model = decoder()
    plain = generated(model, sampling)

    drafted = generated(
        model,
        sampling,
        proposer=DraftModel(decoder(seed=seed)),
        overlap=overlap,
        draft_tokens=3,
        lookahead_tokens=3,
    )

    assert [one.token_ids for one in drafted] == [one.token_ids for one in plain]


def test_logits_are_those_of_what_counts():
    sampling = SamplingParams(9, return_logits=True)
    model = decoder()
    plain = generated(model, sampling)

    drafted = generated(model, sampling, proposer=DraftModel(model), draft_tokens=3, lookahead_tokens=3)

    for one, other in zip(drafted, plain, strict=True):
        assert set(one.logits) == set(other.logits)
        assert all(torch.allclose(one.logits[place], other.logits[place], atol=1e-10) for place in other.logits)


def test_a_checkpoint_guesses(tmp_path):
    write_checkpoint(tmp_path, "gemma3")

    proposer = draft_model(tmp_path)

    assert len(guess(proposer, PROMPTS[0])) == 4


def test_a_guess_that_is_no_token_of_the_model_is_not_computed():
    """Whoever guesses may have a larger vocabulary."""

    class Foreign:
        def propose(self, wanted):
            return [[7, 10_000, 8] for _ in wanted]

        def forget(self, request_id):
            """It remembers nobody."""

    model = decoder()

    drafted = generated(model, GREEDY, proposer=Foreign(), draft_tokens=3, lookahead_tokens=3)

    assert [one.token_ids for one in drafted] == [one.token_ids for one in generated(model, GREEDY)]
