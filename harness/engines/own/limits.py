"""The limits that a configuration promises, and the page counters that the engine keeps."""

from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.harness.core.port import LINKED_MS_PER_STEP
from swarden.invariants import limits
from swarden.invariants.view import Counters

MILLION = 1_000_000


def limits_of(config: EngineConfig) -> limits.Limits:
    shares = config.prefix_sharing and config.role == limits.BOTH
    return limits.Limits(
        page_size=config.page_size,
        max_running_requests=config.max_running_requests,
        max_context_len=config.max_context_len,
        chunk_len=config.chunk_len,
        window_slack=config.window_eviction_interval,
        ratio_floor=int(config.new_token_ratio_floor * MILLION),
        lookahead_len=config.lookahead_tokens,
        most_launches=config.most_launches,
        preemption_threshold=config.preemption_threshold,
        max_forward_retries=config.max_forward_retries,
        waits_by=(limits.PRIORITY, limits.ARRIVAL if config.waiting_order == "fcfs" else limits.LONGEST_MATCH),
        estimates=limits.Estimates(
            config.max_estimated_new_tokens, int(config.new_token_ratio * MILLION), config.new_token_ratio_decay_steps
        ),
        retracts_least_done=True,
        mixes_batches=config.mixed_batches,
        load_back_threshold=config.load_back_threshold if config.host_pools else None,
        writes_back=bool(config.host_pools) and config.host_policy == "write_back",
        writes_through=bool(config.host_pools) and config.host_policy == "write_through",
        draft_len=config.draft_tokens,
        request_timeout_ms=config.request_timeout_ms,
        session_timeout=limits.SessionTimeout(config.session_timeout_ms) if config.session_timeout_ms else None,
        role=config.role,
        names_aborts=True,
        ms_per_step=LINKED_MS_PER_STEP if config.role != "both" else 0,
        shares_prefixes=shares,
        replays=limits.Replays(limits.Ends.PASSES if config.state_pages else limits.Ends.PAGES) if shares else None,
        state_interval=config.state_interval,
    )


def counters_of(memory: KVMemory, tree: RadixTree, *, ratio: float) -> Counters:
    """The page counters, and the new-token ratio `ratio`."""
    pools = [pool.name for pool in memory.pools]
    return Counters(
        {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers},
        dict(zip(pools, tree.evictable, strict=True)),
        dict(zip(pools, tree.protected, strict=True)),
        int(ratio * MILLION),
        ratio,
    )
