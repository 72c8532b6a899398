"""An audit finds blocks of vLLM that changed without a mark: a hook forgot it, or the engine went past the hooks."""

import pytest

from swarden.harness.core.event_log import CAPTURES_PER_AUDIT
from swarden.harness.core.patch import Hunk, Patch
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.kit.calls import intercept
from tests.engines.vllm.some_requests import PROMPT, answer, core_of

OF_BLOCKS = "self.blocks.marked.update([block.block_id for block in blocks])"
OF_HASHED = "self.blocks.marked.update([one.block_id for one in args if not isinstance(one, bytes)])"


def insert(pool, call):
    """Let a hash of the pool's map find a free block, too."""
    hashed, block = next(one.block_hash for one in pool.blocks if one.block_hash), pool.blocks[-1]
    block._block_hash = hashed
    call(hashed, block)


def requeue(queue, block):
    queue.remove(block)
    queue.append(block)


FAULTS = {  # by the hook that forgets its mark, or what the engine does past the hooks
    "_take": (OF_BLOCKS, lambda built, *_: built.pressure(POOL, 3)),
    "_free": (OF_BLOCKS, lambda built, *_: built.pressure(POOL, 0)),
    "_evict": ("self.blocks.marked.add(block.block_id)", lambda _, pool, block: pool.evict_blocks({block.block_id})),
    "_mark": (OF_BLOCKS.replace("in blocks", "in marked"), lambda _, pool, block: pool.touch([block])),
    "_mark_all": ("self.blocks.audit()", lambda _, pool, __: pool.reset_prefix_cache()),
    "_mark_hashed": (OF_HASHED, lambda _, pool, __: insert(pool, pool.cached_block_hash_to_block.insert)),
    "hash dropped": ("", lambda _, __, block: block.reset_hash()),
    "counted": ("", lambda _, __, block: setattr(block, "ref_cnt", 1)),
    "touched": ("", lambda _, pool, block: type(pool).touch(pool, [block])),
    "evicted": ("", lambda _, pool, block: type(pool)._maybe_evict_cached_block(pool, block)),
    "inserted": ("", lambda _, pool, __: insert(pool, lambda *_: None)),
    "queued elsewhere": ("", lambda _, pool, __: requeue(pool.free_block_queue, pool.blocks[300])),
    "reset": ("", lambda _, pool, __: type(pool).reset_prefix_cache(pool)),
}


def missed(engine, fault):
    """Whether audits have missed marks before and after a fault, while the cache holds blocks of no request."""
    built, (mark, act) = core_of(engine, {"prefix_caching": fault != "_take", "num_blocks": 600}), FAULTS[fault]
    blocks = built.moves.blocks
    found = list[bool]()

    def facts():
        blocks.look()
        blocks.queue.read(blocks.counted.places)
        return dict(blocks.counted.places), [*blocks.queue.free], [*blocks.queue.evictable]

    def compare(audit):
        before = facts()
        audit()
        found.append(before != facts())

    intercept(built, "audit", compare)
    answer(built, PROMPT, 4)
    built.pressure(POOL, 3 * (fault == "_free"))
    before = [built.capture() and any(found) for _ in range(CAPTURES_PER_AUDIT)]
    block = next((one for one in built.built.pool.blocks if one.block_hash is not None), None)
    hunks = (Hunk(f"swarden.harness.engines.vllm.moves:Moves.{fault}", mark, "..."),) if mark else ()
    with Patch(fault, hunks).planted():
        act(built, built.built.pool, block)
    return any(before), any(built.capture() and any(found) for _ in range(CAPTURES_PER_AUDIT))


@pytest.mark.parametrize("fault", FAULTS)
def test_audit_finds_what_was_not_marked(release, on_release, fault):
    assert on_release(release, missed, f"vllm=={release}", fault) == (False, True)
