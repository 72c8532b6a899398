"""The cheapest level: the terms of each pool add up to its capacity.  A page both free and in use can hide a leak."""

from collections.abc import Sequence

from swarden.harness.strict.live import Evidence, Handlers, Live, Terms
from swarden.invariants.conservation import Conservation
from swarden.invariants.events import StepEnded
from swarden.invariants.laws.memory.pools import pools_conserve_units, unbalanced
from swarden.invariants.violation import Violation


class Sums:
    """After each step, adds up the engine's counters; the cost does not depend on the size of a pool."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def handlers(self) -> Handlers:
        return {StepEnded: self.step_ended}

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        violations = []
        for terms in self._live.terms():
            _, capacity, free, evictable, protected, uncached, fenced = terms
            if free + evictable + protected + uncached + fenced != capacity:
                violations.append(self._violation(terms))
        return violations

    def evidence(self) -> Evidence:
        """No context: the violation shows the equation, and this level does not know single pages."""
        return Evidence((), ())

    def _violation(self, terms: Terms) -> Violation:
        pool, capacity, free, evictable, protected, _, fenced = terms
        uncached = {owner: count for owner, count in self._live.uncached(pool).items() if count}
        counts = Conservation(capacity, free, evictable, protected, uncached, fenced)
        return Violation(pools_conserve_units.name, *unbalanced(pool, counts))
