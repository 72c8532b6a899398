"""Engines with a host tier, and requests that wait for KV from the host."""

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.ports import HostStore, Ports
from swarden.fakes.backing import FakeBacking
from swarden.fakes.forward import FakeForward
from swarden.fakes.host import UnsteadyHostStore
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.builders import Serving
from tests.engine_under_test.host.bench import HOSTED, ManualStore


def serving_with_host(config: EngineConfig = HOSTED, store: HostStore | None = None) -> Serving:
    """A serving engine with the given host store, or with one that permits faults."""
    serving = Serving(config)
    ports = Ports(
        UnsteadyForward(FakeForward(TagModel()), serving.faults),
        serving.clock,
        serving.log,
        FakeBacking(serving.faults),
        store or UnsteadyHostStore(HostCopier(), serving.faults),
    )
    serving.engine = create_engine(config, ports=ports)
    return serving


def with_copies(*prompts: list[int], config=HOSTED, store: ManualStore | None = None) -> Serving:
    """An engine that has served prompts, and has evicted their pages from the device."""
    serving = serving_with_host(config, store)
    for prompt in prompts:
        serving.serve(prompt, max_new_tokens=1)
    host = serving.engine.host
    assert host is not None, "no pools on the host"
    host.make_room({pool.name: pool.num_pages for pool in config.pools})
    return serving


def with_manual_store(*prompts: list[int], config=HOSTED) -> tuple[Serving, ManualStore]:
    """The same with a manual store, which has no job in flight."""
    store = ManualStore()
    store.ends_on_poll = True
    serving = with_copies(*prompts, config=config, store=store)
    store.ends_on_poll = False
    return serving, store


def finish(serving: Serving, store: ManualStore) -> None:
    """End every job at the next poll, and step until the engine has no work."""
    store.ends_on_poll = True
    serving.run()


def start_loading(serving: Serving, prompt: list[int], *, max_new_tokens: int = 4) -> int:
    """Submit a request that has to wait for a load; returns its id."""
    request = serving.submit(prompt, max_new_tokens=max_new_tokens)
    serving.step()
    return request


def ids(serving: Serving) -> dict[str, list[int]]:
    """The ids of the waiting, the loading and the running requests."""
    scheduler = serving.engine.scheduler
    return {
        "waiting": [request.id for request in scheduler.waiting],
        "loading": [request.id for request in scheduler.loading],
        "running": [request.id for request in scheduler.running],
    }


def host_free(serving: Serving) -> dict[str, int]:
    """The number of free pages, by pool of the host."""
    host = serving.engine.memory.host
    assert host is not None, "no pools on the host"
    return {ledger.name: ledger.num_free for ledger in host.ledgers}
