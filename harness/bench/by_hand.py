"""The machine that a user would write with Hypothesis for the demo's engine, with its own conservation asserts."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from swarden.harness.engines.demo.engine import BlockPool, Engine, Output

BLOCKS = 16


class DemoByHand(RuleBasedStateMachine):
    """Random requests, aborts and steps; after each every block is free or held once, and no answer is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(BlockPool(BLOCKS), block_size=4, max_running=4, chunk_len=8)
        self.wanted: dict[int, int] = {}  # of each unfinished request, the tokens still to come

    @rule(length=st.integers(1, 70), tokens=st.integers(1, 24), stops=st.booleans())
    def submit(self, length: int, tokens: int, stops: bool) -> None:
        request = self.engine.add(list(range(length)), tokens, {length + tokens // 2} if stops else ())
        self.wanted[request] = tokens

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.engine.abort(data.draw(st.sampled_from(sorted(self.wanted))))

    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self._receive(self.engine.step())

    @invariant()
    def every_block_is_free_or_held_once(self) -> None:
        engine = self.engine
        held = [block for request in engine.running for block in request.blocks]
        assert Counter(engine.pool.free_blocks + held) == Counter(range(1, BLOCKS + 1))
        assert len(engine.running) <= engine.max_running

    def teardown(self) -> None:
        for _ in range(1000):
            if not self.engine.has_work:
                break
            self._receive(self.engine.step())
        assert not self.engine.has_work, "stuck"
        assert not self.wanted, "not answered"
        assert len(self.engine.pool.free_blocks) == BLOCKS

    def _receive(self, outputs: list[Output]) -> None:
        for request, token, reason in outputs:
            self.wanted[request.id] -= token is not None
            assert self.wanted[request.id] >= 0, "more tokens than asked for"
            if reason is not None:
                del self.wanted[request.id]
