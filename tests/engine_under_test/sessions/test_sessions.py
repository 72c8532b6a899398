"""Streaming sessions: the KV that a turn leaves, its reuse by the next turn, and its release."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import GivenUp, Kept, Launched, Lent, Retracted, SessionClosed
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, Received, Serving

PROMPT = list(range(100, 110))
CONFIGS = {
    "hybrid": HYBRID,
    "full only": FULL_ONLY,
    "swa only": SWA_ONLY,
    "no sharing": replace(HYBRID, prefix_sharing=False),
    "overlapped": replace(HYBRID, overlap=True),
    "lookahead": replace(HYBRID, lookahead_tokens=3),
}


class SessionServing(Serving):
    """An engine, and clients that take turns in sessions."""

    def take_turn(
        self, session: int, prompt: Sequence[int], *, max_new_tokens: int = 4, stop_token_ids: Sequence[int] = ()
    ) -> int:
        request_id = self.engine.submit(prompt, SamplingParams(max_new_tokens, stop_token_ids), session=session)
        self.received[request_id] = Received()
        return request_id

    def serve_turn(self, session: int, prompt: Sequence[int], *, max_new_tokens: int = 4) -> Received:
        """Take a turn, and step until the engine has no work."""
        request_id = self.take_turn(session, prompt, max_new_tokens=max_new_tokens)
        self.run()
        return self.received[request_id]


def second_turn(serving: SessionServing, session: int, *, cut: int = 0) -> list[int]:
    """The prompt of a second turn: prompt and output of the first, less `cut` tokens, and new tokens."""
    first = serving.serve_turn(session, PROMPT)
    history = [*PROMPT, *first.tokens]
    return [*history[: len(history) - cut], 200, 201, 202]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_turn_starts_at_the_end_of_the_turn_before(config):
    """All tokens have KV but the last sampled one."""
    serving = SessionServing(config)
    session = serving.engine.open_session()
    prompt = second_turn(serving, session)

    second = serving.serve_turn(session, prompt)

    assert second.cached_tokens == len(PROMPT) + 3
    assert second.tokens == serving.expected(prompt, max_new_tokens=4)


@pytest.mark.parametrize("cut", range(1, 14))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_turn_may_rewind_the_turn_before(config, cut):
    """The output after any rewind is that of an engine without a cache."""
    serving = SessionServing(config)
    session = serving.engine.open_session()
    prompt = second_turn(serving, session, cut=cut)

    second = serving.serve_turn(session, prompt)

    assert second.tokens == serving.expected(prompt, max_new_tokens=4)
    assert second.cached_tokens <= len(PROMPT) + 4 - cut


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_closed_session_frees_its_pages_in_every_pool(config):
    serving = SessionServing(config)
    session = serving.engine.open_session()
    serving.serve_turn(session, second_turn(serving, session))

    serving.engine.close_session(session)
    serving.step()

    assert serving.flush_frees_all()
    assert serving.log.of(SessionClosed) == [SessionClosed(session)]


def test_session_closed_during_a_turn_closes_after_the_turn():
    serving = SessionServing()
    session = serving.engine.open_session()
    turn = serving.take_turn(session, PROMPT)
    serving.step(2)

    serving.engine.close_session(session)
    serving.run()

    assert serving.tokens(turn) == serving.expected(PROMPT, max_new_tokens=4)
    assert serving.flush_frees_all()
    late = serving.take_turn(session, PROMPT)
    serving.step()
    assert serving.reason(late) == "rejected: session 1 is not open"


@pytest.mark.parametrize("prompt", [[], list(range(10_000))], ids=["empty", "too long"])
def test_rejected_turn_does_not_change_its_session(prompt):
    serving = SessionServing()
    session = serving.engine.open_session()
    following = second_turn(serving, session)

    rejected = serving.take_turn(session, prompt)
    serving.step()

    assert (serving.reason(rejected) or "").startswith("rejected: ")
    assert serving.serve_turn(session, following).cached_tokens == len(PROMPT) + 3


def test_idle_sessions_keep_at_most_their_share():
    """The share is 12 of 24 pages: two sessions of five pages fit; a third one evicts the first."""
    serving = SessionServing(replace(FULL_ONLY, full_pages=24, idle_session_share=0.5))
    sessions = [serving.engine.open_session() for _ in range(3)]

    for number, session in enumerate(sessions):
        serving.serve_turn(session, list(range(1000 * number, 1000 * number + 16)))

    kept = serving.engine.scheduler.custody.sessions.records
    assert [record.owner.id for record in kept] == sessions[1:]
    assert serving.log.of(GivenUp) == [GivenUp(sessions[0], "pages needed")]


def test_least_recently_used_session_yields_its_pages():
    serving = SessionServing(replace(FULL_ONLY, full_pages=12, idle_session_share=1.0))
    one, other = serving.engine.open_session(), serving.engine.open_session()
    serving.serve_turn(one, PROMPT)
    serving.serve_turn(other, [1, *PROMPT])

    served = serving.serve(list(range(300, 330)), max_new_tokens=2)

    assert served.tokens == serving.expected(list(range(300, 330)), max_new_tokens=2)
    assert [given_up.session for given_up in serving.log.of(GivenUp)] == [one, other][: len(serving.log.of(GivenUp))]
    assert serving.log.of(GivenUp)


def test_session_releases_its_kv_for_its_own_turn_last():
    """The kept pages and the pages of the turn do not fit side by side."""
    serving = SessionServing(replace(FULL_ONLY, full_pages=8, prefix_sharing=False, idle_session_share=1.0))
    session = serving.engine.open_session()
    first = serving.serve_turn(session, list(range(100, 120)), max_new_tokens=4)
    prompt = [*range(100, 110), 7, *range(200, 215)]

    second = serving.serve_turn(session, prompt, max_new_tokens=2)

    assert len(first.tokens) == 4
    assert second.tokens == serving.expected(prompt, max_new_tokens=2)


def test_decode_takes_pages_of_idle_sessions_before_a_retraction():
    serving = SessionServing(replace(FULL_ONLY, full_pages=12, idle_session_share=1.0, new_token_ratio=0.1))
    session = serving.engine.open_session()
    serving.serve_turn(session, list(range(500, 516)))

    many = [serving.submit(list(range(100 * one, 100 * one + 8)), max_new_tokens=12) for one in (1, 2)]
    serving.run()

    assert all(len(serving.tokens(one)) == 12 for one in many)
    assert serving.log.of(GivenUp)
    assert not serving.log.of(Retracted)


@pytest.mark.parametrize(("ms", "num_closed"), [(99, 0), (100, 1)])
def test_idle_session_is_closed_after_its_timeout(ms, num_closed):
    serving = SessionServing(replace(HYBRID, session_timeout_ms=100))
    serving.engine.open_session()

    serving.clock.advance(ms)
    serving.step()

    assert len(serving.log.of(SessionClosed)) == num_closed


def test_long_turn_does_not_expire_its_session():
    serving = SessionServing(replace(HYBRID, session_timeout_ms=100))
    session = serving.engine.open_session()
    turn = serving.take_turn(session, PROMPT)
    serving.step()

    serving.clock.advance(1000)
    serving.step()
    serving.clock.advance(99)
    serving.run()

    assert serving.tokens(turn) == serving.expected(PROMPT, max_new_tokens=4)
    assert serving.log.of(SessionClosed) == []


def test_session_keeps_no_pages_that_a_pass_in_flight_writes():
    """With overlap a turn that stops is scheduled once more; its next turn writes after that pass."""
    serving = SessionServing(replace(HYBRID, overlap=True))
    session = serving.engine.open_session()
    [stop] = serving.expected(PROMPT, max_new_tokens=3)[2:]
    first = serving.take_turn(session, PROMPT, max_new_tokens=9, stop_token_ids=[stop])
    serving.until(Kept)
    prompt = [*PROMPT, *serving.expected(PROMPT, max_new_tokens=3), 200]

    second = serving.serve_turn(session, prompt)

    assert serving.reason(first) == "stop"
    assert serving.log.of(Lent)[-1].length == len(PROMPT) + 2
    assert second.tokens == serving.expected(prompt, max_new_tokens=4)
    assert len(serving.log.of(Launched)) > 4
