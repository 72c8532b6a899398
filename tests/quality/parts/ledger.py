"""The ledgers of one engine alone, beside a naive model."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.units import request_owner
from swarden.harness.engines.own.neighbour import PRESSURE, Neighbour
from swarden.harness.search.traffic.draws import one_option
from swarden.invariants.events import Owner
from tests.quality.parts.ledger_model import ALL, REST, WINDOWED, LedgerModel
from tests.quality.parts.playing import configurations, expect

OWNERS = tuple(request_owner(number) for number in range(1, 5))
PAGE_SIZES = (4, 1, 2)  # so that pools have many pages
CONFIGURATIONS = configurations(page_sizes=PAGE_SIZES, kinds=("both",) * 10 + ("full", "swa"))

owners = st.sampled_from(OWNERS)
counts = st.integers(1, 5)


class LedgerPart(RuleBasedStateMachine):
    """A KVMemory and its clients, each with the list of its handles; a handle is dead if it has no windowed page.

    An owner without suitable handles lets another one with such handles act.
    """

    @initialize(config=CONFIGURATIONS, taken=st.lists(counts, min_size=2, max_size=4))
    def begin(self, config: EngineConfig, taken: list[int]) -> None:
        self.memory = KVMemory.for_config(config, None)
        self.ledgers = self.memory.ledgers
        self.neighbour = Neighbour(self.memory)
        self.model = LedgerModel(config)
        self.handles: dict[Owner, list[int]] = {owner: [] for owner in OWNERS}
        for owner, count in zip(OWNERS, taken, strict=False):
            self.take(owner, count)

    @rule(owner=owners, count=counts)
    def take(self, owner: Owner, count: int) -> None:
        """Take units, those of states as for a prompt; a pool with too few refuses, and no pool changes."""
        length = count * self.memory.page_size
        places = {pool.name: pool.taken(0, count, end=length) for pool in self.memory.pools}
        expected = self.model.take(places, owner)
        try:
            taken = self.ledgers.take(count, owner=owner, places=places)
        except PoolExhausted:
            taken = None
        expect("taken handles", expected, taken)
        self.handles[owner] += taken or ()

    @rule(owner=owners, to=owners, count=counts)
    def give(self, owner: Owner, to: Owner, count: int) -> None:
        owner = self.owner_with(ALL, owner)
        given = self.handles[owner][:count] if owner != to else []
        self.ledgers.give(given, from_owner=owner, to_owner=to)
        self.model.give(given, to)
        del self.handles[owner][: len(given)]
        self.handles[to] += given

    @rule(owner=owners, count=counts, part=one_option(ALL, ALL, ALL, REST, WINDOWED), launch=one_option(1, 0, 2))
    def free(self, owner: Owner, count: int, part: str, launch: int) -> None:
        """The free waits for the first or the second launch in flight, or for none."""
        owner = self.owner_with(part, owner)
        after = self.ledgers.anchor.completed_launch + launch if launch else 0
        self.free_part(owner, self.handles_with(part, owner)[:count], part, after=after)

    @rule(owner=owners, giver=owners, count=counts)
    def take_over(self, owner: Owner, giver: Owner, count: int) -> None:
        """Dead handles take over the windowed pages of another owner."""
        owner, giver = self.owner_with(REST, owner), self.owner_with(ALL, giver)
        kept, incoming = self.handles_with(REST, owner), self.handles_with(ALL, giver)
        count = min(count, len(kept), len(incoming)) if self.windowed else 0
        kept, incoming = kept[:count], incoming[:count]
        for pool in self.windowed:
            pairs = [pair for pair in zip(kept, incoming, strict=True) if pool not in self.model.lacks(pair[1])]
            keepers, givers = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            self.ledgers.take_over(pool, keepers, givers, from_owner=giver, to_owner=owner)
        self.model.take_over(kept, incoming, owner)

    @rule()
    def complete(self) -> None:
        """The oldest launch that fences units completes."""
        launches = [launch for ledger in self.ledgers.ledgers for launch in ledger.fenced_units]
        if launches:
            self.memory.complete(min(launches))
            self.model.complete(min(launches))

    @rule(pool=st.integers(0, 2), pages=one_option(0, 1, 3))
    def pressure(self, pool: int, pages: int) -> None:
        self.model.hold(self.ledgers.ledgers[pool % len(self.ledgers.ledgers)].name, pages, PRESSURE)
        self.neighbour.hold(pool, pages)

    @rule()
    def drain(self) -> None:
        """Every owner frees its handles, every launch completes, and then no unit is taken."""
        for pool in range(len(self.ledgers.ledgers)):
            self.pressure(pool, 0)
        for owner in OWNERS:
            for part in (REST, ALL):
                self.free_part(owner, self.handles_with(part, owner), part)
        while any(ledger.fenced_units for ledger in self.ledgers.ledgers):
            self.complete()
        expect("owners with handles", [], [owner for owner in OWNERS if self.handles[owner]])
        expect("taken units", [], [unit for state in self.model.pools.values() for unit in state.owners])

    @invariant()
    def agrees(self) -> None:
        """Free units in their order, fences, owners and peers are those of the model."""
        for ledger in self.ledgers.ledgers:
            name, state = ledger.name, self.model.pools[ledger.name]
            expect(f"{name}: free", (tuple(state.free), len(state.free)), (ledger.free_units, ledger.num_free))
            fenced = [(launch, unit) for launch, units in ledger.fenced_units.items() for unit in units]
            expect(f"{name}: fenced", sorted(state.fenced), sorted(fenced))
            held = dict.fromkeys(self.neighbour.held(name), PRESSURE)
            for owner, handles in self.handles.items():
                held |= dict.fromkeys(filter(None, self.ledgers.pages_of(name, handles)), owner)
            expect(f"{name}: owners", dict(state.owners), held)
        for pool, peers in self.ledgers.peers.items():
            paired = {handle: peer for handle, peer in enumerate(peers) if peer}
            expect(f"{pool}: peers", self.model.peers[pool], paired)

    @property
    def windowed(self) -> Sequence[str]:
        return self.model.pools_of(WINDOWED)

    def owner_with(self, part: str, owner: Owner) -> Owner:
        """The owner itself or the next one that has handles with this part; the owner itself if there is none."""
        place = OWNERS.index(owner)
        return next((holder for holder in OWNERS[place:] + OWNERS[:place] if self.handles_with(part, holder)), owner)

    def handles_with(self, part: str, owner: Owner) -> list[int]:
        """The owner's handles of which this part can be freed: of dead handles the rest, else all or windowed."""
        if not self.model.pools_of(part):
            return []
        wants_dead = part == REST and bool(self.windowed)
        return [handle for handle in self.handles[owner] if self.is_dead(handle) == wants_dead]

    def is_dead(self, handle: int) -> bool:
        return bool(self.windowed) and set(self.windowed) <= set(self.model.lacks(handle))

    def free_part(self, owner: Owner, handles: Sequence[int], part: str, *, after: int = 0) -> None:
        by_lacks: dict[tuple[str, ...], list[int]] = {}
        for handle in handles:
            by_lacks.setdefault(self.model.lacks(handle), []).append(handle)
        for lacks, group in by_lacks.items():
            if part == WINDOWED:
                for pool in [pool for pool in self.windowed if pool not in lacks]:
                    self.ledgers.free_alone(pool, group, owner=owner, cause=f"freed {part}", after=after)
            else:
                self.ledgers.free(group, owner=owner, cause=f"freed {part}", after=after, lacks=lacks)
            self.model.free(group, part, after=after)
        if self.ledgers.anchor.name in self.model.pools_of(part):
            self.handles[owner] = [handle for handle in self.handles[owner] if handle not in handles]
