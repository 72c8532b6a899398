"""The host tier of one engine alone, over its pools and its prefix cache; the laws judge it, and what is read."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.host.tier import HostCopier, HostTier, Policy
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.units import align_down, num_pages
from swarden.fakes.host import UnsteadyHostStore
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import Recipe
from swarden.harness.engines.own.copies import CopyInspector
from swarden.harness.engines.own.limits import counters_of, limits_of
from swarden.harness.engines.own.memory_walk import MemoryWalk
from swarden.harness.engines.own.neighbour import Neighbour
from swarden.harness.search.traffic.draws import one_option, ordinals, rarely, recipes
from swarden.invariants.catalog import ALL, Tally
from swarden.invariants.events import CopyBegan, CopyEnded, Fired, Slid
from swarden.invariants.reference import namespace_tag, next_tag
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from tests.quality.parts.playing import configurations, expect
from tests.quality.parts.requests import Prompts, Requests

FAULTS = ("host.fails", "host.torn", "host.slow", "host.silent")
DRAIN_POLLS = 50
CONFIGURATIONS = configurations(
    page_sizes=(4, 1, 2), kinds=("both",) * 10 + ("full", "swa"), sharing=(True,), host_ratios=(2, 0.5, 1)
)

namespaces = rarely(st.just(1))
deads = st.integers(0, 6)
long_paths = st.lists(st.integers(0, 1), min_size=3, max_size=5).map(tuple)


class HostPart(RuleBasedStateMachine):
    """Pools, a PrefixCache and a HostTier: an insertion writes tags into its pages, and a reader compares them.

    A reader has a row and a lock on its matched prefix, and no private page.
    """

    @initialize(config=CONFIGURATIONS, first=st.lists(recipes(), min_size=1, max_size=4))
    def begin(self, config: EngineConfig, first: list[Recipe]) -> None:
        self.config = replace(config, load_back_threshold=1)
        self.log = EventLog()
        self.faults = FaultPlan(FAULTS, on_fire=lambda fault: self.log.add(Fired(fault)))
        self.memory = KVMemory.for_config(self.config, self.log)
        self.cache = PrefixCache(self.memory, sharing=True, observer=self.log)
        self.requests = Requests(self.memory, self.cache)
        store = UnsteadyHostStore(HostCopier(), self.faults)
        self.tier = HostTier(Policy.for_config(self.config), self.memory, self.cache, store, self.log)
        self.log.forward_to(CopyInspector(self.memory, self.log.add).notice, CopyBegan, CopyEnded)
        self.neighbour = Neighbour(self.memory)
        self.walk = MemoryWalk(self.memory, self.cache.tree)
        self.readers: list[KVRecord] = []
        self.prompts = Prompts()
        self.num_actions = 0
        self.before = self.capture()
        for recipe in first:
            self.insert(recipe, 0, 0)

    @rule(recipe=recipes(), namespace=namespaces, dead=deads)
    def insert(self, recipe: Recipe, namespace: int, dead: int) -> None:
        """Act as a request: write the pages that are not on the device, and publish them."""
        self.num_actions += 1
        tokens = self.tokens_of(recipe)
        match = self.cache.match(tokens, namespace)
        size = self.memory.page_size
        count = min(num_pages(len(tokens), size) - len(match.handles), self.requests.num_available(match))
        length = min(len(tokens), (len(match.handles) + count) * size)
        if count <= 0 or length < size:
            return
        record = self.requests.open(self.num_actions, match)
        self.tier.found(record.receipt.node)
        try:
            self.requests.grow(record, count, length, self.tier.make_room)
        except PoolExhausted:
            self.requests.close(record)
            return
        self.write(record, tokens[:length], namespace)
        self.slide(record, dead)
        self.cache.publish(record, tokens, namespace=namespace, end=length)
        self.tier.published(record.receipt.node)
        self.requests.close(record)
        self.prompts.add(tokens[:length])

    @rule(recipe=recipes())
    def fetch(self, recipe: Recipe) -> None:
        """Begin to load the part of a prefix that is on the host."""
        match = self.cache.match(self.tokens_of(recipe), 0)
        need = self.tier.pages_to_load(match)
        if need and not self.tier.load_under_way(match):
            try:
                self.tier.load(match, need)
            except PoolExhausted:
                return

    @rule(recipe=recipes(), namespace=namespaces)
    def lock(self, recipe: Recipe, namespace: int) -> None:
        """Lock the matched prefix. The pages that the token after it reads must hold the tags of this prefix."""
        self.num_actions += 1
        tokens = self.tokens_of(recipe)
        match = self.cache.match(tokens, namespace)
        if not self.memory.table.rows.num_free:
            return
        self.readers.append(self.requests.open(self.num_actions, match))
        self.tier.found(self.readers[-1].receipt.node)
        tags = tags_of(tokens[: match.length], namespace)
        for pool in self.memory.pools:
            positions, *places = self.places(pool, match.handles, pool.needed_from(match.length) // pool.page_size)
            stored = self.memory.store.kv(pool.name)[places[0], places[1]].tolist()
            expect(f"{pool.name}: read under a lock", [tags[position] for position in positions], stored)

    @precondition(lambda self: self.readers)
    @rule(receipts=st.lists(ordinals(), min_size=1, max_size=3))
    def unlock(self, receipts: list[int]) -> None:
        for receipt in receipts[: len(self.readers)]:
            self.requests.close(self.readers.pop(receipt % len(self.readers)))

    @rule(need=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 4)))
    def evict(self, need: Sequence[int]) -> None:
        ledgers = self.memory.ledgers.ledgers
        self.tier.make_room({one.name: one.num_free + more for one, more in zip(ledgers, need, strict=False)})

    @rule(path=long_paths, shorter=st.integers(0, 2), polls=st.booleans())
    def come_back(self, path: tuple[int, ...], shorter: int, polls: bool) -> None:
        """A prompt, or its beginning, is requested again after its eviction, while or after its copies are loaded."""
        recipe, beginning = (Recipe(path=one, stretch=8) for one in (path, path[: len(path) - shorter]))
        for _ in range(2):  # the second one reaches the threshold of backups
            self.insert(recipe, 0, 0)
            self.laws_hold()
        self.acknowledge()
        self.evict((256, 256, 256))
        self.laws_hold()
        self.fetch(recipe)
        if polls:
            self.acknowledge()
        else:
            self.insert(beginning, 0, 0)
        self.laws_hold()
        self.lock(beginning, 0)

    @rule(path=long_paths, fault=st.sampled_from(FAULTS), skip=one_option(0, 1, 2))
    def come_back_in_trouble(self, path: tuple[int, ...], fault: str, skip: int) -> None:
        """The same, and a copy fails or is late."""
        self.inject(fault, skip, 1)
        self.come_back(path, 0, True)
        self.heal()

    @rule(path=long_paths, pages=one_option(3, 256))
    def come_back_to_a_full_pool(self, path: tuple[int, ...], pages: int) -> None:
        """The same, and a neighbour holds free pages before the load."""
        recipe = Recipe(path=path, stretch=8)
        self.come_back(path, 0, True)
        self.unlock([0])
        self.evict((256, 256, 256))
        self.pressure(0, pages)
        self.laws_hold()
        self.fetch(recipe)
        self.laws_hold()
        self.pressure(0, 0)

    @rule()
    def acknowledge(self) -> None:
        self.tier.poll()

    @rule(pool=st.integers(0, 2), pages=one_option(0, 1, 3))
    def pressure(self, pool: int, pages: int) -> None:
        self.neighbour.hold(pool, pages)

    @rule(fault=st.sampled_from(FAULTS), skip=st.integers(0, 2), count=one_option(1, 3))
    def inject(self, fault: str, skip: int, count: int) -> None:
        self.faults.arm(fault, skip=skip, count=count)

    @rule()
    def heal(self) -> None:
        self.faults.heal()

    @rule()
    def drain(self) -> None:
        """Faults end, copies finish, every reader unlocks, and then a flush leaves nothing."""
        self.faults.heal()
        self.neighbour.release_all()
        for _ in range(DRAIN_POLLS):
            self.tier.poll()
        expect("copies in flight", (), tuple(self.tier.under_way))
        while self.readers:
            self.requests.close(self.readers.pop())
        self.cache.flush()
        self.tier.flush()
        self.check(When.QUIESCENT)

    @invariant()
    def laws_hold(self) -> None:
        """Begin the backups that are due, and check all laws and contracts that apply."""
        self.tier.back_up()
        self.check(When.OP)

    def check(self, when: When) -> None:
        before, self.before = self.before, self.capture()
        expect("violations", [], ALL.check(Transition(before, self.log.take(), self.before, when), Tally()))

    def capture(self) -> Snapshot:
        walk = self.walk
        held = {pool.name: self.neighbour.holdings(pool.name) for pool in self.memory.pools}
        walk.visit(self.readers, held, copy_jobs=self.tier.under_way)
        return Snapshot(
            self.num_actions,
            limits_of(self.config),
            walk.components,
            walk.pools,
            walk.peer_maps,
            walk.nodes,
            walk.receipts,
            records=None,
            requests=None,
            counters=counters_of(self.memory, self.cache.tree, ratio=1.0),
            copy_jobs=walk.copy_jobs,
            host_pools=walk.host_pools,
        )

    def tokens_of(self, recipe: Recipe) -> list[int]:
        return self.prompts.expand(recipe)[: self.config.max_context_len]

    def write(self, record: KVRecord, tokens: Sequence[int], namespace: int) -> None:
        """Write the tags of [protected_len, len(tokens)) into its pages, as a forward would write KV."""
        tags = tags_of(tokens, namespace)
        tags += [0] * (-len(tags) % self.memory.page_size)
        for pool in self.memory.pools:
            positions, pages, slots = self.places(pool, record.handles, record.protected_len // pool.page_size)
            self.memory.store.kv(pool.name)[pages, slots] = torch.tensor([tags[position] for position in positions])

    def slide(self, record: KVRecord, dead: int) -> None:
        """Free the windowed part of the first `dead` private pages, up to the frontier that the window allows.

        If a page is freed, the windowed pages of the tree are unlocked up to the same frontier.
        """
        page_size, ledgers = self.memory.page_size, self.memory.ledgers
        for pool in self.memory.pools if dead else ():
            max_frontier = pool.frontier(record.committed_len)
            frontier = align_down(min(record.protected_len + dead * page_size, max_frontier), page_size)
            if frontier > record.protected_len:
                first, end = record.protected_len // page_size, frontier // page_size
                private = record.held(pool.name, first, end, page_size=page_size)
                ledgers.free_alone(pool.name, private, owner=record.owner, cause="slid")
                record.receipt = self.cache.slide(record.receipt, {pool.name: frontier})
                record.write(self.memory.table, first, ledgers.without(pool.name, record.handles[first:end]))
                self.log.notice(Slid(record.owner.id, 0, frontier))
                record.frontiers[pool.name] = frontier

    def places(
        self, pool: Component, handles: Sequence[int], first: int
    ) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        """Positions from page index `first` on (all tokens of a page, or its last states), their pages and slots."""
        size, num_slots = pool.page_size, pool.slots or pool.page_size
        pages = self.memory.ledgers.pages_of(pool.name, handles)
        held = [index for index in range(first, len(pages)) if pages[index]]
        positions = [one for index in held for one in range((index + 1) * size - num_slots, (index + 1) * size)]
        return (
            positions,
            torch.tensor([pages[position // size] for position in positions], dtype=torch.int64),
            torch.tensor([position % num_slots for position in positions], dtype=torch.int64),
        )


def tags_of(tokens: Sequence[int], namespace: int) -> list[int]:
    """The tag of each position of a prefix."""
    tags, tag = [], namespace_tag(namespace)
    for token in tokens:
        tag = next_tag(tag, token)
        tags.append(tag)
    return tags
