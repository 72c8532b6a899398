"""Decodes with drafts: computation, verification, and the KV of rejected drafts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine_under_test.errors import ConfigError, EngineError
from engine_under_test.events import Inserted, Kept, Launched, Proposed, Retracted, Verified
from engine_under_test.ports import Wanted
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, Received
from tests.engine_under_test.speculative.guessing import Guessing

PROMPT, OTHER = list(range(100, 117)), list(range(300, 309))
DRAFTING: dict[str, Any] = {"lookahead_tokens": 3, "draft_tokens": 3}
CONFIGS = {
    "hybrid": replace(HYBRID, **DRAFTING),
    "full only": replace(FULL_ONLY, **DRAFTING),
    "swa only": replace(SWA_ONLY, **DRAFTING),
    "nothing shared": replace(UNSHARED, **DRAFTING),
    "overlapped": replace(HYBRID, overlap=True, **DRAFTING),
    "mixed": replace(HYBRID, mixed_batches=True, chunk_len=5, **DRAFTING),
    "overlapped and mixed": replace(HYBRID, overlap=True, mixed_batches=True, chunk_len=5, **DRAFTING),
    "longer lookahead": replace(HYBRID, lookahead_tokens=6, draft_tokens=2),
}


class Stubborn:
    """Proposes the same drafts for any tokens, and more than are wanted."""

    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [[5] * 9 for _ in wanted]

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


class Absent(Stubborn):
    """Returns no drafts, not even an empty list per request."""

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return []


LENGTHS = pytest.mark.parametrize("lengths", [(), (0,), (1,), (3,), (3, 0, 1), (2, 5)], ids=str)
ALL_CONFIGS = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@LENGTHS
@ALL_CONFIGS
def test_however_good_the_guesses_the_output_is_the_same(config, lengths):
    serving = Guessing(config, lengths)
    requests = {serving.submit(prompt, max_new_tokens=11): prompt for prompt in (PROMPT, OTHER, PROMPT[:6])}

    serving.run()

    assert [serving.tokens(one) for one in requests] == [
        serving.expected(prompt, max_new_tokens=11) for prompt in requests.values()
    ]
    assert serving.emptied()


@LENGTHS
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_retracted_request_with_drafts_generates_the_same(lengths, overlap):
    serving = Guessing(replace(FULL_ONLY, full_pages=10, overlap=overlap, new_token_ratio=0.1, **DRAFTING), lengths)
    requests = {serving.submit(prompt, max_new_tokens=14): prompt for prompt in (OTHER, PROMPT[:9])}

    serving.run()

    assert serving.heard.of(Retracted)
    assert [serving.tokens(one) for one in requests] == [
        serving.expected(prompt, max_new_tokens=14) for prompt in requests.values()
    ]
    assert serving.emptied()


def test_good_guesses_save_passes():
    serving = Guessing(CONFIGS["hybrid"], (3,))

    serving.serve(PROMPT[:9], max_new_tokens=9)

    assert serving.passes == [((1, 0, 9),), ((1, 9, 10),), ((1, 13, 14),)]
    assert [verified.num_accepted for verified in serving.heard.of(Verified)] == [3, 3]


@pytest.mark.parametrize(
    ("length", "cursors"),
    [
        pytest.param(0, (10, 10, 13, 4), id="none is right"),
        pytest.param(2, (12, 12, 13, 4), id="some are right"),
        pytest.param(3, (13, 13, 13, 4), id="all are right"),
    ],
)
def test_record_ends_with_the_accepted_drafts(length, cursors):
    """KV of rejected drafts stays behind committed_len, in allocated pages."""
    serving = Guessing(CONFIGS["hybrid"], (length,))
    serving.submit(PROMPT[:9], max_new_tokens=20)
    serving.step(2)

    [record] = serving.engine.scheduler.custody.records

    assert (record.committed_len, record.launched_len, record.allocated_len, len(record.handles)) == cursors


def test_in_flight_it_is_the_last_token_that_is_launched():
    serving = Guessing(CONFIGS["overlapped"], (3,))
    serving.submit(PROMPT[:9], max_new_tokens=20)
    serving.until(Proposed)

    [record] = serving.engine.scheduler.custody.records

    assert (record.committed_len, record.launched_len, record.allocated_len) == (9, 10, 13)


def test_decode_waits_for_draft_verification():
    serving = Guessing(CONFIGS["overlapped"], (1,))

    serving.serve(PROMPT[:9], max_new_tokens=7)

    assert serving.passes == [((1, 0, 9),), ((1, 9, 10),), ((1, 11, 12),), ((1, 13, 14),)]


@pytest.mark.parametrize(
    ("wanted", "tokens", "reason"),
    [
        pytest.param(SamplingParams(3), 3, "length", id="its length"),
        pytest.param(SamplingParams(20, stop_token_ids=()), 20, "length", id="a whole number of passes"),
    ],
)
def test_drafts_beyond_max_new_tokens_are_not_sent(wanted, tokens, reason):
    serving = Guessing(CONFIGS["hybrid"], (3,))

    received = serving.serve(PROMPT[:9], max_new_tokens=wanted.max_new_tokens)

    assert (received.tokens, received.reason) == (serving.expected(PROMPT[:9], max_new_tokens=tokens), reason)


def test_beyond_a_stop_token_nothing_is_sent_or_shared():
    """The stop token is the second of four tokens that one pass returns."""
    serving = Guessing(CONFIGS["hybrid"], (3,))
    said = serving.expected(PROMPT[:9], max_new_tokens=5)
    request = serving.submit(PROMPT[:9], max_new_tokens=20, stop_token_ids=[said[2]])

    serving.run()

    assert (serving.tokens(request), serving.received[request].reason) == (said[:3], "stop")
    assert serving.heard.of(Inserted)[-1].end == 12


@pytest.mark.parametrize("lengths", [(3,), (0,), (1, 2)], ids=str)
@ALL_CONFIGS
def test_session_keeps_only_accepted_tokens(config, lengths):
    serving = Guessing(replace(config, max_context_len=64), lengths)
    session = serving.engine.open_session()
    said = list(PROMPT[:9])
    for turn in range(4):
        request = serving.engine.submit(said, SamplingParams(5), session=session)
        serving.received[request] = Received()
        serving.run()
        assert serving.tokens(request) == serving.expected(said, max_new_tokens=5)
        said += [*serving.tokens(request), 400 + turn]

    kept = serving.heard.of(Kept)
    serving.engine.close_session(session)

    assert all(said_len - 1 <= one.length <= said_len for one, said_len in zip(kept, (14, 20, 26, 32), strict=True))
    assert serving.emptied()


def test_more_than_was_wanted_is_not_computed():
    serving = Guessing(CONFIGS["hybrid"], proposer=Stubborn())

    serving.serve(PROMPT[:9], max_new_tokens=3)

    assert [len(proposed.drafts) for proposed in serving.heard.of(Proposed)] == [3, 3]


def test_mixed_batch_has_no_drafts():
    """The budget counts one token for each decoding request."""
    serving = Guessing(CONFIGS["mixed"], (3,))
    serving.submit(OTHER, max_new_tokens=12)
    serving.step(3)
    serving.submit(PROMPT, max_new_tokens=1)
    serving.run()

    mixed = [launched.launch for launched in serving.heard.of(Launched) if len(launched.entries) == 2]
    assert mixed
    assert not {proposed.launch for proposed in serving.heard.of(Proposed)}.intersection(mixed)


def test_proposer_forgets_ended_requests():
    proposer = Stubborn()

    Guessing(CONFIGS["hybrid"], proposer=proposer).serve(PROMPT, max_new_tokens=3)

    assert proposer.forgotten == [1]


def test_ratio_falls_once_per_decode_with_drafts():
    """The ratio falls with each decode, not with steps that wait for draft verification."""
    serving = Guessing(CONFIGS["overlapped"], (1,))
    serving.submit(PROMPT[:9], max_new_tokens=20)
    serving.until(Proposed)
    before = serving.engine.scheduler.ratio.value
    serving.step(4)

    passes = len(serving.heard.of(Proposed)) - 1
    step = (serving.config.new_token_ratio - serving.config.new_token_ratio_floor) / (
        serving.config.new_token_ratio_decay_steps
    )
    assert before - serving.engine.scheduler.ratio.value == pytest.approx(passes * step)


def test_missing_drafts_of_a_proposer_raise_an_error():
    serving = Guessing(CONFIGS["hybrid"], proposer=Absent())
    serving.submit(PROMPT, max_new_tokens=3)

    with pytest.raises(EngineError, match="the proposer returned 0 drafts for 1 requests"):
        serving.run()


def test_proposer_without_draft_tokens_is_refused():
    with pytest.raises(ConfigError, match="draft_tokens: 0, and a proposer is given"):
        Guessing(HYBRID, (3,))
