"""Serves a trace with all checks on, at the recorded arrival times or sequentially, and summarizes the run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.units import num_pages
from swarden.harness.core.driver import Checking, Driver, Failure, KeptParts
from swarden.harness.core.ops import AdvanceClock, Drain, Step, Submit
from swarden.harness.core.port import Streamed
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.system import EngineSystem
from swarden.harness.core.target import ENGINE
from swarden.harness.traces.mooncake import TraceRequest
from swarden.invariants.catalog import catalog_of
from swarden.invariants.events import Evicted, Freed, Taken

UNCHECKED = 1 << 62  # steps between two checks, so that there is none
HISTORY_LEN = 64  # ops and checked steps that a failure can show


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a run."""

    step_ms: int = 100  # of an engine step
    check_every: int = 32  # steps; 0: only at the end, besides the strict check of the engine
    sequential: bool = False  # requests run one after the other


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool's capacity, its peak use (cached pages included) and its evicted pages (None: the engine reports none)."""

    capacity: int
    peak: int
    evicted: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a trace."""

    requests: int  # that finished
    prompt_tokens: int
    output_tokens: int
    hit_share: float  # of their prompts, as is the next
    hit_share_beyond_first_block: float
    retractions: int
    steps: int
    seconds: float
    violations: int  # of the first transition with one; an exception of the engine counts as one
    pools: Mapping[str, PoolUse]


class Served(NamedTuple):
    """A summary, the failure that stopped the run, and in order the finish reasons of requests that ended early."""

    summary: Summary
    failure: Failure | None
    cut_short: Sequence[str]


class Hits:
    """Prompt, cached and output tokens of the finished requests."""

    def __init__(self) -> None:
        self.requests = self.retractions = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.cut_short: list[str] = []
        self._tokens_beyond = self._cached_beyond = 0

    def ended(self, request: TraceRequest, last: Streamed) -> None:
        """Count a request by its last streamed output."""
        self.requests += 1
        self.retractions += last.num_retractions
        self.prompt_tokens += request.prompt_len
        self.cached_tokens += last.cached_tokens
        full_len = request.num_full_blocks * request.block_len
        self._tokens_beyond += max(0, full_len - request.block_len)
        self._cached_beyond += max(0, min(last.cached_tokens, full_len) - request.block_len)
        if last.finish_reason != "length":
            self.cut_short.append(str(last.finish_reason))

    @property
    def share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def share_beyond_first_block(self) -> float:
        """The cached share of full blocks after the first block, which all requests may have in common."""
        return self._cached_beyond / self._tokens_beyond if self._tokens_beyond else 0.0


class PoolMeter:
    """Tracks the used pages of each pool event by event, so that no peak between two checks is missed."""

    def __init__(self, capacities: Mapping[str, int], *, has_evictions: bool) -> None:
        self._capacities, self._has_evictions = capacities, has_evictions
        self._used = dict.fromkeys(capacities, 0)
        self._peaks = dict.fromkeys(capacities, 0)
        self._evicted = dict.fromkeys(capacities, 0)

    def look(self, events: Iterable[NamedTuple]) -> None:
        for event in events:
            if isinstance(event, Taken) and event.pool in self._used:
                self._used[event.pool] += len(event.units)
                self._peaks[event.pool] = max(self._peaks[event.pool], self._used[event.pool])
            elif isinstance(event, Freed) and event.pool in self._used:
                self._used[event.pool] -= len(event.units)
            elif isinstance(event, Evicted):
                for pool, count in event.freed:
                    self._evicted[pool] += count

    @property
    def pools(self) -> dict[str, PoolUse]:
        return {
            name: PoolUse(capacity, self._peaks[name], self._evicted[name] if self._has_evictions else None)
            for name, capacity in self._capacities.items()
        }


class TraceServer:
    """One engine that serves a trace, with the clock of the arrivals if it has one."""

    def __init__(self, config: Any, pace: Pace, on_end: Callable[[], None], engine: str = OWN) -> None:
        target = target_of(engine)
        self.system = EngineSystem(target.build(config), keep_finished=False)
        checking = Checking(
            catalog_of(target.contracts), every=pace.check_every or UNCHECKED, code=target.code, target=target.name
        )
        self.driver = Driver(
            [self.system], checking=checking, keep=KeptParts(digests=False, moments=HISTORY_LEN, ops=HISTORY_LEN)
        )
        self.hits = Hits()
        start = self.system.capture()
        pools = {component.pool for component in start.components}
        self.meter = PoolMeter(
            {pool.name: pool.capacity for pool in start.pools if pool.name in pools},
            has_evictions=Evicted.__name__ not in start.unreported,
        )
        self._has_clock = AdvanceClock in target.machines[ENGINE].ops
        self._pace = pace
        self._on_end = on_end
        self._now_ms = 0
        self._alive: dict[int, TraceRequest] = {}

    def serve(self, requests: Sequence[TraceRequest]) -> None:
        """Serve all requests to their end, then drain; the drain must leave no page in use."""
        for request in requests:
            if self._pace.sequential:
                self.finish()
            else:
                self.run_until(request.arrival_ms)
            if self.driver.failure is not None or (self._pace.sequential and self.system.has_work):
                break
            self._submit(request)
        self.finish()
        self.driver.apply(Drain())

    def run_until(self, arrival_ms: int) -> None:
        """Step until the next arrival; an idle engine advances its clock at once."""
        while self._now_ms < arrival_ms and self._is_running:
            self._step()
        if self._now_ms < arrival_ms:
            self._advance(arrival_ms - self._now_ms)

    def finish(self) -> None:
        """Step until the engine is idle, at most as long as a drain; the final drain reports a stuck engine."""
        for _ in range(self.system.drain_bound):
            if not self._is_running:
                break
            self._step()

    @property
    def _is_running(self) -> bool:
        return self.system.has_work and self.driver.failure is None

    def _submit(self, request: TraceRequest) -> None:
        self.driver.apply(Submit(tokens=request.prompt_token_ids(), max_new_tokens=request.max_new_tokens))
        self._alive[self.system.submitted[-1]] = request

    def _step(self) -> None:
        self.driver.apply(Step())
        self.meter.look(self.system.last_events)
        for streamed in self.system.streamed:
            self.hits.output_tokens += len(streamed.token_ids)
            if streamed.finish_reason is not None:
                self.hits.ended(self._alive.pop(streamed.request_id), streamed)
                self._on_end()
        self._advance(self._pace.step_ms)

    def _advance(self, ms: int) -> None:
        if self._has_clock:
            self.driver.apply(AdvanceClock(ms=ms))
        self._now_ms += ms


def serve(
    requests: Sequence[TraceRequest],
    config: Any,
    pace: Pace,
    on_end: Callable[[], None] = lambda: None,
    engine: str = OWN,
) -> Served:
    """Serve a trace with the fake forward; stops at the first violation. `on_end` is called per finished request."""
    began = perf_counter()
    server = TraceServer(config, pace, on_end, engine)
    server.serve(requests)
    hits, failure = server.hits, server.driver.failure
    summary = Summary(
        requests=hits.requests,
        prompt_tokens=hits.prompt_tokens,
        output_tokens=hits.output_tokens,
        hit_share=hits.share,
        hit_share_beyond_first_block=hits.share_beyond_first_block,
        retractions=hits.retractions,
        steps=server.driver.counts.engine_steps,
        seconds=perf_counter() - began,
        violations=0 if failure is None else len(failure.violations) or 1,
        pools=server.meter.pools,
    )
    return Served(summary, failure, hits.cut_short)


def oracle_config(requests: Sequence[TraceRequest]) -> EngineConfig:
    """An engine that never evicts: full attention only, a page per block, and pages for all tokens of the trace."""
    page_size = requests[0].block_len
    return EngineConfig(
        page_size=page_size,
        full_pages=sum(num_pages(request.most_len, page_size) for request in requests),
        max_running_requests=1,
        max_context_len=longest(requests),
        chunk_len=None,
    )


def longest(requests: Sequence[TraceRequest]) -> int:
    """Tokens of the longest request with all of its output, at least the smallest valid context length."""
    return max(2, *(request.most_len for request in requests))
