"""Perturbations: a bit or an entry is changed on purpose; the level content must notice it, and blame nothing else.

Each run serves random requests, on a tag forward or on a tiny model in turn.  Its first part is healthy.  A changed
slot must be noticed by the end of the first step in which a pass reads it.  If the slot is freed before it is read, or
if the run has nothing to change, the run is moot, and the next seed takes its place.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from random import Random
from typing import NamedTuple

from engine_under_test.cache.node import Node
from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.engine import Engine
from engine_under_test.events import Event, Filled, Freed
from engine_under_test.model.runner import ModelForward
from engine_under_test.pools.kv_store import KVStore
from engine_under_test.ports import Forward, Link, Ports
from engine_under_test.sampling import SamplingParams
from engine_under_test.units import lookback, num_pages
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from harness.bench.perturbing_ports import FlippingLink, FlippingStore, ReadWatch, flip_bit
from harness.engines.own.adapter import ReferenceModel
from harness.engines.own.models import tiny_model
from harness.strict.content import Content
from harness.strict.outside import Outside
from invariants.violation import Ref, Violation

CONFIG = EngineConfig(
    page_size=4,
    full_pages=40,
    swa_pages=24,
    sliding_window=6,
    max_running_requests=4,
    max_context_len=128,
    chunk_len=16,
    host_full_pages=80,
    host_swa_pages=40,
    load_back_threshold=1,
    poison_freed_pages=True,
    checksum_transfers=True,
)
MODEL = "tiny-gemma3"
SWEPT_PAGES = 2  # so few that most slots are read before they are swept
HEALTHY_STEPS = (4, 20)
MOST_STEPS = 60  # after the perturbation
FAMILIES = 3  # of prompts with the same start
SUBMISSIONS = 0.4  # per step


class Kind(StrEnum):
    USED = "bit of a page in use"
    CACHED = "bit of a cached page"
    ON_HOST = "bit of a host page"
    COPIED = "bit of a host copy in flight"
    SENT = "bit of a page on the link"
    ROW = "entry of a row"
    PEER = "entry of a peer map"


class Outcome(StrEnum):
    NOTICED = "noticed"
    MISATTRIBUTED = "misattributed"
    LATE = "late"
    MISSED = "missed"
    MOOT = "moot"
    FALSE_ALARM = "false alarm"


class Blamed(NamedTuple):
    """The violation that a perturbation must cause: its law and subject, and one of its values."""

    law: str
    subject: Ref
    value: tuple[str, object]

    def fits(self, violation: Violation) -> bool:
        name, value = self.value
        return (violation.law, violation.subject) == self[:2] and violation.values.get(name) == value


class Noticed(Exception):
    """The level content has found violations."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__(violations)
        self.violations = violations


class Watch:
    """The observer of an engine: raises Noticed for violations, and keeps the pages that were freed.

    `filled` has the page that was filled from a transfer, by request, pool and place.
    """

    def __init__(self) -> None:
        self.freed: set[tuple[str, int]] = set()
        self.filled: dict[tuple[int, str, int], int] = {}
        self._handlers: Mapping[type, Callable[..., Sequence[Violation] | None]] = {}

    def attach(self, engine: Engine) -> None:
        self._handlers = Content(1.0, num_swept=SWEPT_PAGES).attach(engine, Outside())

    def notice(self, event: Event) -> None:
        if isinstance(event, Freed):
            self.freed.update((event.pool, unit) for unit in event.units)
        if isinstance(event, Filled):
            for place, page in zip(event.places, event.pages, strict=True):
                self.filled[event.request_id, event.pool, place] = page
        handler = self._handlers.get(type(event))
        if handler is not None and (violations := handler(event)):
            raise Noticed(violations)


class Run:
    """An engine, or a linked pair, under random requests; `engine` is the one that is perturbed."""

    def __init__(self, seed: int, *, is_paired: bool) -> None:
        self.chance = Random(seed)
        self.store, (sending, receiving) = FlippingStore(), InProcessLink.pair()
        self.link = FlippingLink(sending)
        links: Mapping[str, Link | None] = {"prefill": self.link, "decode": receiving} if is_paired else {"both": None}
        self._num_submitted = 0
        self._engines = []
        for role, link in links.items():
            config = CONFIG if link is None else CONFIG.for_side(role)
            forward: Forward = (
                ModelForward(tiny_model(MODEL, config).decoder) if seed % 2 else FakeForward(ReferenceModel())
            )
            self.reads, self.watch = ReadWatch(forward), Watch()
            self.engine = Engine(config, Ports(self.reads, FakeClock(), self.watch, host=self.store, link=link))
            self.watch.attach(self.engine)
            self._engines.append(self.engine)

    def step(self) -> None:
        if self.chance.random() < SUBMISSIONS:
            start = self.chance.randrange(FAMILIES)
            self.submit([*range(start, start + self.chance.randint(6, 30)), 60 + self.chance.randrange(8)])
        for engine in self._engines:
            engine.step()

    def submit(self, tokens: Sequence[int]) -> None:
        self._num_submitted += 1
        sampling = SamplingParams(self.chance.randint(3, 12))
        for engine in self._engines:
            if engine.config.role == "both":
                engine.submit(tokens, sampling)
            else:
                engine.submit_transfer(self._num_submitted, tokens, sampling)

    def flip(self, store: KVStore, pool: str, page: int) -> Callable[[], Blamed]:
        """Flip a bit in a slot of a page; a slot on the device is watched from then on."""
        page_dim, offset = store.page_dim(pool), self.chance.randrange(CONFIG.page_size)
        slot = page * CONFIG.page_size + offset
        flip_bit(store.kv(pool).flatten(page_dim, page_dim + 1), page_dim, slot, self.chance)
        self.reads.watched = (pool, slot)
        return lambda: Blamed("slots_keep_their_bytes", Ref("page", page, pool), ("offset", offset))


def text(outcomes: Counter[Outcome]) -> str:
    return ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome)


def measure_all(runs: int) -> dict[Kind, Counter[Outcome]]:
    return {kind: measure(kind, runs) for kind in Kind}


def measure(kind: Kind, runs: int) -> Counter[Outcome]:
    """Perturb in `runs` runs that are not moot, and serve the same runs without a perturbation, as long."""
    outcomes = Counter[Outcome]()
    for seed in count():
        if outcomes.total() - outcomes[Outcome.MOOT] - outcomes[Outcome.FALSE_ALARM] == runs:
            break
        outcome, steps = _perturbed(kind, seed)
        outcomes[outcome] += 1
        if outcome != Outcome.MOOT:
            outcomes[Outcome.FALSE_ALARM] += not _is_healthy(Run(seed, is_paired=kind == Kind.SENT), steps)
    return outcomes


def _perturbed(kind: Kind, seed: int) -> tuple[Outcome, int]:
    """The outcome of a perturbation, and the number of steps of the run.

    A report must have its violation alone.  A wrong peer is an exception: it also breaks laws on owners and peers,
    whose violations may follow.
    """
    run = Run(seed, is_paired=kind == Kind.SENT)
    steps = run.chance.randint(*HEALTHY_STEPS)
    if not _is_healthy(run, steps):
        return Outcome.FALSE_ALARM, steps
    blamed = PERTURBATIONS[kind](run)
    if blamed is None:
        return Outcome.MOOT, steps
    run.watch.freed.clear()
    for step in range(MOST_STEPS):
        try:
            run.step()
        except Noticed as noticed:
            want, found = blamed(), noticed.violations
            is_right = want is not None and want.fits(found[0]) and (kind == Kind.PEER or len(found) == 1)
            return Outcome.NOTICED if is_right else Outcome.MISATTRIBUTED, steps + step
        if run.reads.is_read:
            return Outcome.LATE, steps + step
        if run.reads.watched is not None:
            pool, slot = run.reads.watched
            if (pool, slot // CONFIG.page_size) in run.watch.freed:
                return Outcome.MOOT, steps
    return Outcome.MISSED if blamed() is not None else Outcome.MOOT, steps + MOST_STEPS


def _is_healthy(run: Run, steps: int) -> bool:
    try:
        for _ in range(steps):
            run.step()
    except Noticed:
        return False
    return True


def _used(run: Run) -> Callable[[], Blamed] | None:
    """A slot that the next pass of a request reads."""
    memory, places = run.engine.memory, []
    for record in run.engine.scheduler.custody.records:
        for pool in memory.pools:
            first = 0 if pool.window is None else max(0, record.committed_len - lookback(pool.window))
            whole = slice(num_pages(first, CONFIG.page_size), record.committed_len // CONFIG.page_size)
            places += [(pool.name, page) for page in memory.ledgers.pages_of(pool.name, record.handles[whole])]
    return run.flip(memory.store, *run.chance.choice(places)) if places else None


def _cached(run: Run) -> Callable[[], Blamed] | None:
    """A slot of an unlocked page of the tree, which the next prompt continues."""
    memory, places = run.engine.memory, []
    for node in _nodes(run.engine):
        for component, pool in enumerate(memory.pools):
            if node.live[component] and not node.locks[component]:
                places += [(node, pool.name, page) for page in memory.ledgers.pages_of(pool.name, node.handles)]
    if not places:
        return None
    node, pool_name, page = run.chance.choice(places)
    run.submit([*_tokens(node), 70])
    return run.flip(memory.store, pool_name, page)


def _on_host(run: Run) -> Callable[[], Blamed] | None:
    """A slot of a page on the host, which the next prompt continues."""
    host = run.engine.memory.host
    assert host is not None, "the engine has a host tier"
    places = [
        (node, pool.name, page)
        for node in _nodes(run.engine)
        for pool, pages in zip(host.pools, node.host.pages, strict=True)
        for page in pages
    ]
    if not places:
        return None
    node, pool_name, page = run.chance.choice(places)
    run.submit([*_tokens(node), 70])
    return run.flip(host.store, pool_name, page)


def _copied(run: Run) -> Callable[[], Blamed | None]:
    """A bit of a page that the next copy to or from the host writes."""
    run.store.armed = run.chance
    store = run.engine.memory.store

    def blamed() -> Blamed | None:
        if run.store.flipped is None:
            return None
        copy, index = run.store.flipped
        here, there, on_device = copy.source_pages[index], copy.target_pages[index], copy.source
        if any(copy.target is store.kv(pool) for pool in store.pools):
            here, there, on_device = there, here, copy.target
        [pool] = [pool for pool in store.pools if on_device is store.kv(pool)]
        other = Ref("page", there, f"host {pool}")
        return Blamed("copies_equal_their_source", Ref("page", here, pool), ("copy", other))

    return blamed


def _sent(run: Run) -> Callable[[], Blamed | None]:
    """A bit of a page that the prefill engine sends next."""
    memory = run.engine.memory
    run.link.armed, run.link.page_dim = run.chance, memory.store.page_dim(memory.ledgers.anchor.name)

    def blamed() -> Blamed | None:
        if run.link.flipped is None:
            return None
        message, index = run.link.flipped
        page = run.watch.filled.get((message.transfer_id, message.pool, message.first + index))
        if page is None:
            return None
        request = Ref("request", message.transfer_id)
        return Blamed("pages_arrive_as_they_were_sent", Ref("page", page, message.pool), ("request", request))

    return blamed


def _row(run: Run) -> Callable[[], Blamed] | None:
    """An entry of the row of a request that has computed something, or will."""
    memory = run.engine.memory
    records = [record for record in run.engine.scheduler.custody.records if record.handles]
    if not records:
        return None
    record = run.chance.choice(records)
    index = run.chance.randrange(len(record.handles))
    memory.table.write(record.row, index, [_other(run, record.handles[index], memory.ledgers.anchor.capacity)])
    return lambda: Blamed("rows_match_their_records", Ref(*record.owner), ("index", index))


def _peer(run: Run) -> Callable[[], Blamed] | None:
    """The peer of a page that has one."""
    ledgers = run.engine.memory.ledgers
    [follower] = ledgers.followers
    peers = ledgers.peers[follower.name]
    handles = [handle for handle, peer in enumerate(peers) if peer]
    if not handles:
        return None
    handle = run.chance.choice(handles)
    before, peers[handle] = peers[handle], _other(run, peers[handle], follower.capacity)
    paired_with = Ref("page", before, follower.name)
    return lambda: Blamed(
        "peers_change_only_by_pairing", Ref("page", handle, ledgers.anchor.name), ("paired_with", paired_with)
    )


PERTURBATIONS: Mapping[Kind, Callable[[Run], Callable[[], Blamed | None] | None]] = {
    Kind.USED: _used,
    Kind.CACHED: _cached,
    Kind.ON_HOST: _on_host,
    Kind.COPIED: _copied,
    Kind.SENT: _sent,
    Kind.ROW: _row,
    Kind.PEER: _peer,
}


def _nodes(engine: Engine) -> list[Node]:
    found = list(engine.cache.tree.roots.values())
    for node in found:
        found += node.children.values()
    return [node for node in found if node.in_tree]


def _tokens(node: Node) -> list[int]:
    """The tokens from the root to the end of a node."""
    return [token for one in reversed(list(node.upward())) for token in one.key]


def _other(run: Run, page: int, capacity: int) -> int:
    """Another page than `page`."""
    return run.chance.choice([other for other in range(1, capacity + 1) if other != page])
