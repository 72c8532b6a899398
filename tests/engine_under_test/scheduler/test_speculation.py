"""Decodes with drafts: computation, verification, and the KV of rejected drafts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from swarden.engine_under_test.errors import ConfigError, EngineError
from swarden.engine_under_test.ports import Wanted
from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import Inserted, Kept, Launched, Proposed, Retracted, Verified
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, Received
from tests.engine_under_test.scheduler.speculative_serving import SpeculativeServing

PROMPT, OTHER = list(range(100, 117)), list(range(300, 309))
DRAFTING: dict[str, Any] = {"lookahead_tokens": 3, "draft_tokens": 3}
CONFIGS = {
    "hybrid": replace(HYBRID, **DRAFTING),
    "full only": replace(FULL_ONLY, **DRAFTING),
    "swa only": replace(SWA_ONLY, **DRAFTING),
    "no sharing": replace(UNSHARED, **DRAFTING),
    "overlapped": replace(HYBRID, overlap=True, **DRAFTING),
    "mixed": replace(HYBRID, mixed_batches=True, chunk_len=5, **DRAFTING),
    "overlapped and mixed": replace(HYBRID, overlap=True, mixed_batches=True, chunk_len=5, **DRAFTING),
    "longer lookahead": replace(HYBRID, lookahead_tokens=6, draft_tokens=2),
}


class FixedProposer:
    """Proposes the same drafts for any tokens, and more than are wanted."""

    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [[5] * 9 for _ in wanted]

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


class EmptyProposer(FixedProposer):
    """Returns no drafts, not even an empty list per request."""

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return []


LENGTHS = pytest.mark.parametrize("lengths", [(), (0,), (1,), (3,), (3, 0, 1), (2, 5)], ids=str)
ALL_CONFIGS = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@LENGTHS
@ALL_CONFIGS
def test_output_does_not_depend_on_the_drafts(config, lengths):
    serving = SpeculativeServing(config, lengths)
    requests = {serving.submit(prompt, max_new_tokens=11): prompt for prompt in (PROMPT, OTHER, PROMPT[:6])}

    serving.run()

    assert [serving.tokens(one) for one in requests] == [
        serving.expected(prompt, max_new_tokens=11) for prompt in requests.values()
    ]
    assert serving.flush_frees_all()


@LENGTHS
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_retracted_request_with_drafts_generates_the_same(lengths, overlap):
    serving = SpeculativeServing(
        replace(FULL_ONLY, full_pages=10, overlap=overlap, new_token_ratio=0.1, **DRAFTING), lengths
    )
    requests = {serving.submit(prompt, max_new_tokens=14): prompt for prompt in (OTHER, PROMPT[:9])}

    serving.run()

    assert serving.log.of(Retracted)
    assert [serving.tokens(one) for one in requests] == [
        serving.expected(prompt, max_new_tokens=14) for prompt in requests.values()
    ]
    assert serving.flush_frees_all()


def test_accepted_drafts_save_passes():
    serving = SpeculativeServing(CONFIGS["hybrid"], (3,))

    serving.serve(PROMPT[:9], max_new_tokens=9)

    assert len(serving.passes) == 3
    assert [verified.num_accepted for verified in serving.log.of(Verified)] == [3, 3]


@pytest.mark.parametrize("max_new_tokens", [3, 20])
def test_drafts_beyond_max_new_tokens_are_not_sent(max_new_tokens):
    serving = SpeculativeServing(CONFIGS["hybrid"], (3,))

    received = serving.serve(PROMPT[:9], max_new_tokens=max_new_tokens)

    tokens = serving.expected(PROMPT[:9], max_new_tokens=max_new_tokens)
    assert (received.tokens, received.reason) == (tokens, "length")


def test_tokens_after_a_stop_token_are_not_sent_or_published():
    """The stop token is the second of four tokens that one pass returns."""
    serving = SpeculativeServing(CONFIGS["hybrid"], (3,))
    history = serving.expected(PROMPT[:9], max_new_tokens=5)
    request = serving.submit(PROMPT[:9], max_new_tokens=20, stop_token_ids=[history[2]])

    serving.run()

    assert (serving.tokens(request), serving.received[request].reason) == (history[:3], "stop")
    assert serving.log.of(Inserted)[-1].end == 12


@pytest.mark.parametrize("lengths", [(3,), (0,), (1, 2)], ids=str)
@ALL_CONFIGS
def test_session_keeps_only_accepted_tokens(config, lengths):
    serving = SpeculativeServing(replace(config, max_context_len=64), lengths)
    session = serving.engine.open_session()
    history = list(PROMPT[:9])
    for turn in range(4):
        request = serving.engine.submit(history, SamplingParams(5), session=session)
        serving.received[request] = Received()
        serving.run()
        assert serving.tokens(request) == serving.expected(history, max_new_tokens=5)
        history += [*serving.tokens(request), 400 + turn]

    kept = serving.log.of(Kept)
    serving.engine.close_session(session)

    assert all(
        history_len - 1 <= one.length <= history_len for one, history_len in zip(kept, (14, 20, 26, 32), strict=True)
    )
    assert serving.flush_frees_all()


def test_excess_drafts_are_not_computed():
    serving = SpeculativeServing(CONFIGS["hybrid"], proposer=FixedProposer())

    serving.serve(PROMPT[:9], max_new_tokens=3)

    assert [len(proposed.drafts) for proposed in serving.log.of(Proposed)] == [3, 3]


def test_mixed_batch_has_no_drafts():
    """The budget counts one token for each decoding request."""
    serving = SpeculativeServing(CONFIGS["mixed"], (3,))
    serving.submit(OTHER, max_new_tokens=12)
    serving.step(3)
    serving.submit(PROMPT, max_new_tokens=1)
    serving.run()

    mixed = [launched.launch for launched in serving.log.of(Launched) if len(launched.entries) == 2]
    assert mixed
    assert not {proposed.launch for proposed in serving.log.of(Proposed)}.intersection(mixed)


def test_proposer_forgets_ended_requests():
    proposer = FixedProposer()

    SpeculativeServing(CONFIGS["hybrid"], proposer=proposer).serve(PROMPT, max_new_tokens=3)

    assert proposer.forgotten == [1]


def test_missing_drafts_of_a_proposer_raise_an_error():
    serving = SpeculativeServing(CONFIGS["hybrid"], proposer=EmptyProposer())
    serving.submit(PROMPT, max_new_tokens=3)

    with pytest.raises(EngineError, match="the proposer returned 0 drafts for 1 requests"):
        serving.run()


def test_proposer_without_draft_tokens_is_refused():
    with pytest.raises(ConfigError, match="draft_tokens: 0, and a proposer is given"):
        SpeculativeServing(HYBRID, (3,))
