"""An engine with a component that the configuration does not offer: a second, narrower window."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from swarden.engine_under_test.config import EngineConfig, PoolSpec
from swarden.invariants.events import CopyEnded, Recovered, Slid, Tombstoned
from tests.engine_under_test.builders import Serving
from tests.engine_under_test.host.serving import serving_with_host


@dataclass(frozen=True)
class TwoWindows(EngineConfig):
    """The whole prefix, a wide window and a narrow one, each with a pool on the host if `host_full_pages` is given.

    A freed page is poisoned, so a read of it gives another output.
    """

    page_size: int = 2
    full_pages: int = 30
    swa_pages: int = 18
    sliding_window: int | None = 9
    max_running_requests: int = 4
    max_context_len: int = 80
    chunk_len: int | None = 8
    load_back_threshold: int = 1
    poison_freed_pages: bool = True

    @property
    def pools(self) -> tuple[PoolSpec, ...]:
        return (*super().pools, PoolSpec("narrow", 12, 3))

    @property
    def host_pools(self) -> tuple[PoolSpec, ...]:
        sizes = (self.host_full_pages, self.host_swa_pages, self.host_swa_pages)
        specs = zip(self.pools, sizes, strict=True)
        return tuple(PoolSpec(f"host {pool.name}", size, pool.window) for pool, size in specs if size)


HOSTED = TwoWindows(host_full_pages=60, host_swa_pages=40)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(TwoWindows(), id="plain"),
        pytest.param(TwoWindows(overlap=True, mixed_batches=True), id="overlap and mixed batches"),
        pytest.param(TwoWindows(lookahead_tokens=4, draft_tokens=3), id="drafts"),
        pytest.param(HOSTED, id="host tier"),
        pytest.param(replace(HOSTED, host_policy="write_back", overlap=True), id="write-back and overlap"),
    ],
)
def test_engine_with_two_windows_generates_what_the_model_does_without_a_cache(config):
    """Prefixes are shared, evicted, recovered and loaded; one window slides ahead of the other."""
    serving = serving_with_host(config) if config.host_pools else Serving(config)
    random = Random(1)
    served = []
    for _ in range(20):
        prompt, max_new_tokens = random.choices((1, 2), k=random.randint(1, 30)), random.randint(1, 14)
        served.append((serving.submit(prompt, max_new_tokens=max_new_tokens), prompt, max_new_tokens))
        serving.step(random.randint(0, 4))
    serving.run()

    for request_id, prompt, max_new_tokens in served:
        assert serving.tokens(request_id) == serving.expected(prompt, max_new_tokens=max_new_tokens)
    assert {event.component for event in serving.log.of(Tombstoned)} == {"swa", "narrow"}
    assert serving.log.of(Slid)
    assert serving.log.of(CopyEnded if config.host_pools else Recovered)
    assert serving.flush_frees_all()
