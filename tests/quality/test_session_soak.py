"""A thousand turns of 32 conversations on pools for eight: nothing is lost, nothing grows, everything said is right."""

from dataclasses import replace
from random import Random

import pytest

from engine_under_test.events import GivenUp, Kept, Lent
from engine_under_test.sampling import SamplingParams
from engine_under_test.strict import VARIABLE
from tests.engine_under_test.builders import HYBRID, Received
from tests.engine_under_test.speculative.serving import SpeculativeServing

SESSIONS, TURNS, AT_ONCE = 32, 1000, 6
LONGEST = 72  # tokens of a conversation, then a new one begins
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
    """Conversations that go on in random order, and sometimes take back what was said."""

    def __init__(self, serving: SpeculativeServing) -> None:
        self.serving = serving
        self.random = Random(7)
        self.said: dict[int, list[int]] = {self._opened(): [] for _ in range(SESSIONS)}
        self.held: list[int] = []  # pages that somebody keeps from being evicted, turn by turn
        self.num_turns = 0

    def go_on(self) -> None:
        """Some take their turns, together."""
        asked = {}
        for session in self.random.sample(sorted(self.said), AT_ONCE):
            asked[self._turn(session)] = session
        self.serving.run()
        for request, session in asked.items():
            prompt = self.said[session]
            tokens = self.serving.tokens(request)
            assert tokens == self.serving.expected(prompt, max_new_tokens=len(tokens)), f"turn {self.num_turns}"
            assert self.serving.received[request].reason == "length"
            self.said[session] = [*prompt, *tokens]
        self.num_turns += len(asked)
        memory, cache = self.serving.engine.memory, self.serving.engine.cache
        self.held.append(
            sum(ledger.capacity - ledger.num_free - cache.evictable(ledger.name) for ledger in memory.ledgers.ledgers)
        )

    def _turn(self, session: int) -> int:
        said, rewind = self.said[session], self.random.choice((0, 0, 0, 3, 9))
        prompt = [
            *said[: max(0, len(said) - rewind)],
            *self.random.choices(range(100, 164), k=self.random.choice((2, 7))),
        ]
        self.said[session] = prompt
        request = self.serving.engine.submit(prompt, SamplingParams(self.random.randrange(2, 9)), session=session)
        self.serving.received[request] = Received()
        return request

    def renew(self) -> None:
        """Long conversations end, and others begin."""
        for session in [session for session, said in self.said.items() if len(said) > LONGEST - 16]:
            self.serving.engine.close_session(session)
            del self.said[session]
            self.said[self._opened()] = []

    def end(self) -> None:
        for session in self.said:
            self.serving.engine.close_session(session)

    def _opened(self) -> int:
        return self.serving.engine.open_session()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_thousand_turns_leave_nothing_behind(config, monkeypatch):
    monkeypatch.setenv(VARIABLE, "audit")
    serving = SpeculativeServing(config, (3, 0, 1))
    soak = Soak(serving)

    while soak.num_turns < TURNS:
        soak.go_on()
        soak.renew()
    third = len(soak.held) // 3
    soak.end()

    assert max(soak.held[-third:]) <= max(soak.held[third // 2 : third + third // 2])
    assert len(serving.log.of(Lent)) > TURNS / 10
    assert len(serving.log.of(Kept)) == soak.num_turns
    assert {event.cause for event in serving.log.of(GivenUp)} >= {"pages needed", "diverged"}
    assert serving.flush_frees_all()
