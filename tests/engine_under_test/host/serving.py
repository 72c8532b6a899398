"""Engines that have a host tier, and requests that wait for what only the host has."""

from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from engine_under_test.host.copier import HostCopier
from engine_under_test.ports import HostStore, Ports
from fakes.backing import FakeBacking
from fakes.forward import FakeForward
from fakes.host import UnsteadyHostStore
from fakes.unsteady import UnsteadyForward
from harness.engines.own.adapter import ReferenceModel
from tests.engine_under_test.builders import Serving
from tests.engine_under_test.host.bench import HOSTED, StoreByHand


def serving_with_host(config: EngineConfig = HOSTED, store: HostStore | None = None) -> Serving:
    """A serving engine with a host store of the test, or with one that permits faults."""
    serving = Serving(config)
    ports = Ports(
        UnsteadyForward(FakeForward(ReferenceModel()), serving.faults),
        serving.clock,
        serving.heard,
        FakeBacking(serving.faults),
        store or UnsteadyHostStore(HostCopier(), serving.faults),
    )
    serving.engine = create_engine(config, ports=ports)
    return serving


def with_copies(*prompts: list[int], config=HOSTED, store: StoreByHand | None = None) -> Serving:
    """An engine that has served prompts, of which the host alone has something."""
    serving = serving_with_host(config, store)
    for prompt in prompts:
        serving.serve(prompt, max_new_tokens=1)
    host = serving.engine.host
    assert host is not None, "no pools on the host"
    host.make_room({pool.name: pool.num_pages for pool in config.pools})
    return serving


def by_hand(*prompts: list[int], config=HOSTED) -> tuple[Serving, StoreByHand]:
    """The same with a store by hand, which has nothing under way."""
    store = StoreByHand()
    store.is_prompt = True
    serving = with_copies(*prompts, config=config, store=store)
    store.is_prompt = False
    return serving, store


def finish(serving: Serving, store: StoreByHand) -> None:
    """Let all that is copied end from now on, and step until nothing is left to do."""
    store.is_prompt = True
    serving.run()


def loading(serving: Serving, prompt: list[int], *, max_new_tokens: int = 4) -> int:
    """A request that waits for a load."""
    request = serving.submit(prompt, max_new_tokens=max_new_tokens)
    serving.step()
    return request


def ids(serving: Serving) -> dict[str, list[int]]:
    """Who is where."""
    scheduler = serving.engine.scheduler
    return {
        "waiting": [request.id for request in scheduler.waiting],
        "loading": [request.id for request in scheduler.loading],
        "running": [request.id for request in scheduler.running],
    }


def host_free(serving: Serving) -> dict[str, int]:
    """By pool of the host, how many pages are free."""
    host = serving.engine.memory.host
    assert host is not None, "no pools on the host"
    return {ledger.name: ledger.num_free for ledger in host.ledgers}
