"""The cheapest level: free, cached and held units of each pool add up to its capacity.

The tree's counters are taken at their word, and a page that is both free and in use hides a leaked page.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.foreign.attached.levels import AttachedLevel
from swarden.harness.engines.sglang.attached.live import Holders, inner_tree
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import nodes_of
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.requests import held
from swarden.harness.engines.sglang.scheduler import BuiltScheduler
from swarden.invariants.events import TREE, Owner
from swarden.invariants.laws.memory.pools import pools_conserve_units, unbalanced
from swarden.invariants.view import Holding, PoolView
from swarden.invariants.violation import Violation


class PrivatePages(NamedTuple):
    """The private pages of one request or session."""

    owner: Owner
    full: int
    swa: int


class Terms(NamedTuple):
    """The counters of a pool, in its units."""

    name: str
    capacity: int
    free: int
    evictable: int
    protected: int


class Sums(AttachedLevel):
    """After each turn, compares the counters of the allocators and of the tree with the lengths of the records.

    The cost is a pass over the running requests. It does not depend on the size of a pool.
    """

    def __init__(self, release: SglangRelease, config: SglangConfig, built: BuiltScheduler) -> None:
        self._config, self._built = config, built
        self._nodes, self._holders = nodes_of(release, config, inner_tree(built.memory.tree)), Holders(built)

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        held_pages = [self._held(owner, kv) for owner, kv in self._holders.now().items()]
        rows = self._built.memory.rows
        full, swa = self._terms()
        counts = {
            full: sum([one.full for one in held_pages]),
            swa: sum([one.swa for one in held_pages]),
            Terms("rows", rows.size, len(rows.free_slots), 0, 0): len(held_pages),
        }
        return [
            Violation(pools_conserve_units.name, *unbalanced(_view(terms, held_pages)))
            for terms, count in counts.items()
            if terms.free + terms.evictable + terms.protected + count != terms.capacity
        ]

    def _terms(self) -> tuple[Terms, Terms]:
        _, allocator, tree = self._built.memory
        config, page = self._config, self._config.page_size
        return (
            Terms(
                "full",
                config.full_pages,
                allocator.full_available_size() // page,
                int(tree.full_evictable_size()) // page,
                int(tree.full_protected_size()) // page,
            ),
            Terms(
                "swa",
                config.swa_pages,
                allocator.swa_available_size() // page,
                int(tree.swa_evictable_size()) // page,
                int(tree.swa_protected_size()) // page,
            ),
        )

    def _held(self, owner: Owner, kv: Any) -> PrivatePages:
        page = self._config.page_size
        pages, protected = -(-held(kv, "kv_allocated_len") // page), held(kv, "cache_protected_len")
        frontier = max(protected, self._nodes.frontier(kv))
        return PrivatePages(owner, pages - protected // page, pages - frontier // page)


def _view(terms: Terms, held_pages: Sequence[PrivatePages]) -> PoolView:
    """The numbers of units of each holder, as a pool with placeholder unit numbers."""
    holdings = [
        Holding(TREE, range(terms.evictable), cached=True),
        Holding(TREE, range(terms.protected), cached=True, locks=1),
    ]
    for one in held_pages:
        count = {"full": one.full, "swa": one.swa}.get(terms.name, 1)
        holdings.append(Holding(one.owner, range(count), cached=False))
    return PoolView(
        terms.name, "row" if terms.name == "rows" else "page", terms.capacity, range(terms.free), (), holdings
    )
