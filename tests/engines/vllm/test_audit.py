"""An audit finds blocks of vLLM that changed without a mark: a hook forgot it, or the engine went past the hooks."""

import pytest

from swarden.harness.core.patch import Hunk, Patch
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.kit.adapted import CAPTURES_PER_AUDIT
from tests.engines.vllm.some_requests import PROMPT, answer, core_of

OF_BLOCKS = "self._marked.update([block.block_id for block in blocks])"
MARKS = {
    "_take": (OF_BLOCKS, lambda built, *_: built.pressure(POOL, 3)),
    "_free": (OF_BLOCKS, lambda built, *_: built.pressure(POOL, 0)),
    "_evict": ("self._marked.add(block.block_id)", lambda _, pool, block: pool.evict_blocks({block.block_id})),
    "_mark": (OF_BLOCKS.replace("blocks", "marked"), lambda _, pool, block: pool.touch([block])),
    "_mark_all": ("self._marked.update(self._all)", lambda _, pool, __: pool.reset_prefix_cache()),
}
BYPASSES = {
    "hash dropped": lambda _, block: block.reset_hash(),
    "counted": lambda _, block: setattr(block, "ref_cnt", 1),
    "touched": lambda pool, block: type(pool).touch(pool, [block]),
    "evicted": lambda pool, block: type(pool)._maybe_evict_cached_block(pool, block),
    "reset": lambda pool, _: type(pool).reset_prefix_cache(pool),
}


def missed(engine, fault):
    """Whether audits have missed marks before and after a fault, while the cache holds blocks of no request."""
    built = core_of(engine, {"prefix_caching": fault != "_take"})
    answer(built, PROMPT, 4)
    built.pressure(POOL, 3 * (fault == "_free"))
    before = [built.capture() and bool(built.moves.missed) for _ in range(CAPTURES_PER_AUDIT)]
    pool = built.built.pool
    block = next((one for one in pool.blocks if one.block_hash is not None), None)
    mark, act = MARKS.get(fault, ("", lambda _, *args: BYPASSES[fault](*args)))
    hunks = (Hunk(f"swarden.harness.engines.vllm.moves:Moves.{fault}", mark, "..."),) if mark else ()
    with Patch(fault, hunks).planted():
        act(built, pool, block)
    after = [built.capture() and bool(built.moves.missed) for _ in range(CAPTURES_PER_AUDIT)]
    return any(before), any(after)


@pytest.mark.parametrize("fault", [*MARKS, *BYPASSES])
def test_audit_finds_what_was_not_marked(release, on_release, fault):
    assert on_release(release, missed, f"vllm=={release}", fault) == (False, True)
