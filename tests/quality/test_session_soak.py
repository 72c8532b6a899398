"""A thousand turns of 32 sessions on pools for eight: no page leaks, and every output is right."""

from dataclasses import replace
from random import Random

import pytest

from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE
from swarden.invariants.events import GivenUp, Kept, Lent
from tests.engine_under_test.builders import HYBRID, Received
from tests.engine_under_test.scheduler.speculative_serving import SpeculativeServing

SESSIONS, TURNS, AT_ONCE = 32, 1000, 6
LONGEST = 72  # tokens of a session; then it is closed and a new one is opened
SOAK = replace(
    HYBRID,
    full_pages=8 * LONGEST // HYBRID.page_size,
    swa_pages=8 * 6,
    max_running_requests=4,
    max_context_len=128,
    lookahead_tokens=3,
    draft_tokens=3,
    idle_session_share=0.6,
)
CONFIGS = {
    "plain": SOAK,
    "overlapped, mixed, with a host": replace(
        SOAK, overlap=True, mixed_batches=True, host_full_pages=200, host_swa_pages=60, host_policy="write_back"
    ),
}


class Soak:
    """Sessions with turns in random order; some turns rewind the session."""

    def __init__(self, serving: SpeculativeServing) -> None:
        self.serving = serving
        self.random = Random(7)
        self.tokens: dict[int, list[int]] = {self._opened(): [] for _ in range(SESSIONS)}
        self.held: list[int] = []  # pages that are neither free nor evictable, after each round of turns
        self.num_turns = 0

    def run_turns(self) -> None:
        """Run a turn of some sessions, at the same time."""
        sessions = {}
        for session in self.random.sample(sorted(self.tokens), AT_ONCE):
            sessions[self._turn(session)] = session
        self.serving.run()
        for request, session in sessions.items():
            prompt = self.tokens[session]
            tokens = self.serving.tokens(request)
            assert tokens == self.serving.expected(prompt, max_new_tokens=len(tokens)), f"turn {self.num_turns}"
            assert self.serving.received[request].reason == "length"
            self.tokens[session] = [*prompt, *tokens]
        self.num_turns += len(sessions)
        memory, cache = self.serving.engine.memory, self.serving.engine.cache
        self.held.append(
            sum(ledger.capacity - ledger.num_free - cache.evictable(ledger.name) for ledger in memory.ledgers.ledgers)
        )

    def _turn(self, session: int) -> int:
        tokens, rewind = self.tokens[session], self.random.choice((0, 0, 0, 3, 9))
        prompt = [
            *tokens[: max(0, len(tokens) - rewind)],
            *self.random.choices(range(100, 164), k=self.random.choice((2, 7))),
        ]
        self.tokens[session] = prompt
        request = self.serving.engine.submit(prompt, SamplingParams(self.random.randrange(2, 9)), session=session)
        self.serving.received[request] = Received()
        return request

    def renew(self) -> None:
        """Close the long sessions and open new ones."""
        for session in [session for session, tokens in self.tokens.items() if len(tokens) > LONGEST - 16]:
            self.serving.engine.close_session(session)
            del self.tokens[session]
            self.tokens[self._opened()] = []

    def close(self) -> None:
        for session in self.tokens:
            self.serving.engine.close_session(session)

    def _opened(self) -> int:
        return self.serving.engine.open_session()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_thousand_turns_leak_no_page(config, monkeypatch):
    monkeypatch.setenv(VARIABLE, "audit")
    serving = SpeculativeServing(config, (3, 0, 1))
    soak = Soak(serving)

    while soak.num_turns < TURNS:
        soak.run_turns()
        soak.renew()
    third = len(soak.held) // 3
    soak.close()

    assert max(soak.held[-third:]) <= max(soak.held[third // 2 : third + third // 2])
    assert len(serving.log.of(Lent)) > TURNS / 10
    assert len(serving.log.of(Kept)) == soak.num_turns
    assert {event.cause for event in serving.log.of(GivenUp)} >= {"pages needed", "diverged"}
    assert serving.flush_frees_all()
