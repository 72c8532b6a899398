"""The machine that a user would write with Hypothesis for the demo's engine, with its own conservation asserts.

python -m swarden.harness.bench.by_hand MUTANT SEED
"""

import sys
from collections import Counter

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from swarden.harness.engines.demo.engine import BlockPool, Engine, Output
from swarden.harness.engines.demo.mutants import MUTANTS

BLOCKS = 16
FOUND = 10  # the exit code if the machine has failed; Python ends with 1 after any other error


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


def search(mutant: str, seed: int) -> None:
    """Search for the bug with more examples than by default; exit with FOUND if the machine fails."""
    [planted] = [bug.planted() for bug in MUTANTS.all if bug.id == mutant]
    examples = hypothesis.settings(max_examples=1_000_000, deadline=None, database=None)
    with planted:
        try:
            run_state_machine_as_test(hypothesis.seed(seed)(DemoByHand), settings=examples)
        except* AssertionError:  # of the machine, or several; another error goes on
            sys.exit(FOUND)


if __name__ == "__main__":
    search(sys.argv[1], int(sys.argv[2]))
