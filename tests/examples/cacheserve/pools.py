"""The first level of the target: configurations, pools and requests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from swarden import kit
from swarden.kit import events, view
from tests.examples.cacheserve.engine import BlockPool, Engine, Entry, Model

BLOCKS = "blocks"
CODE = kit.EngineCode("tests.examples.cacheserve", emitters=("take", "release", "evict"))
SIZE = kit.within(1, 1 << 16)


class CacheConfig(kit.Settings, frozen=True):
    num_blocks: Annotated[int, SIZE, kit.Drawn(range(4, 25))] = 16
    block_size: Annotated[int, SIZE, kit.Drawn((4, 1, 2, 16))] = 4
    max_running: Annotated[int, SIZE, kit.Drawn((4, 1, 2))] = 4
    chunk_len: Annotated[int, SIZE, kit.Drawn((8, 1, 5, 64))] = 8

    @property
    def shape(self) -> kit.Shape:
        longest, pools = self.num_blocks * self.block_size, (kit.Pool(BLOCKS, self.num_blocks),)
        return kit.Shape(self.block_size, pools, self.chunk_len, self.max_running, longest)


class NoModel:
    """Computes nothing: each token is the same."""

    def __init__(self) -> None:
        self._lens: list[int] = []

    def launch(self, entries: Sequence[Entry]) -> None:
        self._lens.append(len(entries))

    def results(self) -> Sequence[int]:
        return [8] * self._lens.pop(0)


class PoolsPort(kit.Adapted):
    """A pass of one step completes in the next."""

    code = CODE
    reported = kit.names_of([events.Finished, events.Fired])

    def __init__(self, config: CacheConfig) -> None:
        super().__init__()
        size, running = config.block_size, config.max_running
        self.config, self.pool = config, self.make_pool(config.num_blocks)
        self.engine = Engine(self.pool, self.make_model(), size, running, config.chunk_len)
        self.components = (view.ComponentView(BLOCKS, None, size),)
        self.limits = kit.Limits(
            page_size=size,
            max_running_requests=running,
            max_context_len=config.num_blocks * size,
            most_launches=2,
            reuses_in_launch_order=True,
            shares_prefixes=True,
        )

    def make_pool(self, num_blocks: int) -> BlockPool:
        return BlockPool(num_blocks)

    def make_model(self) -> Model:
        return NoModel()

    def submit(self, submission: kit.Submission) -> int:
        tokens, limit = submission.tokens, max(1, submission.max_new_tokens)
        return self.engine.add(tokens, limit, submission.stop, submission.namespace)

    def abort(self, request_id: int) -> None:
        self.engine.abort(request_id)

    def step(self) -> Sequence[kit.Streamed]:
        self.begin_step()
        outputs = self.engine.step()
        for request, _, reason in outputs:
            if reason is not None:
                self.log.notice(events.Finished(request.id, reason))
        return [kit.Streamed(one.id, tokens, reason, one.cached_len, 0) for one, tokens, reason in outputs]

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    def clear(self) -> None:
        self.engine.pool.evict(list(self.engine.pool.queue))

    def facts(self) -> Mapping[int, kit.UnitFacts]:
        """By block, the tables that have it, its count, and whether it is cached."""
        pool, holders = self.engine.pool, dict[int, list[events.Owner]]()
        for request in self.engine.running:
            for block in request.blocks:
                holders.setdefault(block, []).append(events.Owner("request", request.id))
        return {
            block: kit.UnitFacts(holders.get(block, ()), count, block in pool.key_of)
            for block, count in pool.counts.items()
        }

    def pools(self) -> Iterator[view.PoolView]:
        yield kit.pool_view(BLOCKS, "block", self.facts(), list(self.engine.pool.queue))

    def request_views(self) -> Iterator[view.RequestView]:
        for place, requests in (("waiting", self.engine.waiting), ("running", self.engine.running)):
            for one in requests:
                lengths = one.prompt_len, one.num_outputs, one.max_new_tokens
                yield view.RequestView(one.id, place, one.salt, *lengths)


class PoolsTarget(kit.ConfiguredTarget):
    name = "cacheserve-pools"
    code = CODE
    machines: Mapping[str, kit.MachineSpec] = {
        kit.ENGINE: kit.MachineSpec(ops=(kit.Submit, kit.Abort, kit.Step, kit.Inject, kit.Heal, kit.Drain))
    }
    faults = kit.CLIENT_FAULTS
    config_type = CacheConfig

    def build(self, config: CacheConfig) -> PoolsPort:
        return PoolsPort(config)
