"""A prefix that device and host have lost is fetched from the storage; what goes wrong there is seen."""

from collections.abc import Callable
from typing import Any

import pytest

from swarden.harness.core.ops import Abort, Drain, Inject, Op, Reset, ResetCause, Step, Submit
from swarden.harness.core.port import Streamed
from swarden.harness.engines.sglang.parts.sidecar import SIDECAR
from swarden.harness.engines.sglang.parts.storage import STORAGE_FAILS, STORAGE_PARTIAL, STORAGE_SLOW
from swarden.harness.engines.sglang.target import SGLANG
from tests.engines.sglang.conftest import RELEASES, config_of, driver_of, host_of, laws_that_fail, port_of

RELEASE = RELEASES[-1]
WITH_STORAGE = [version for version in ("0.5.17", "0.5.18", RELEASE) if version in SGLANG.installed()]
PREFIX = tuple(range(1, 33))
STORED = 3  # the op before which the prefix is in the storage alone
QUERIES = 1  # operations of a prefetch before its first read
AGAIN = Submit(tokens=(*PREFIX, 40), max_new_tokens=2)
RETURN: tuple[Op, ...] = (
    Submit(tokens=PREFIX, max_new_tokens=2),
    Step(count=12),
    Reset(cause=ResetCause.CLIENT),
    AGAIN,
    Step(count=12),
    Drain(),
)
SETTINGS = {"full_pages": 80, "swa_pages": 50, "host_ratio": 1.0, "load_back_threshold": 1}
OF_MODELS = {
    "window": SETTINGS,
    "full-attention": {**SETTINGS, "sliding_window": None, "page_size": 4},
    "sparse-attention": {**SETTINGS, "sliding_window": None, "page_size": 4, "sidecar": True},
}
OF_STATES = {
    **SETTINGS,
    "sliding_window": None,
    "page_size": 4,
    "state_slots": 40,
    "chunk_len": 16,
    "state_strategy": "extra_buffer",
}


def run(
    version: str, settings: dict[str, Any], policy: str, ops: tuple[Op, ...], plant: Callable[[Any], None] | None = None
) -> tuple[list[Streamed], set[str]]:
    """The outputs of clients, and the laws that fail."""
    driver, outputs = driver_of(version, config_of(storage_policy=policy, **settings)), list[Streamed]()
    port: Any = port_of(driver)
    make_step = port.step

    def step() -> Any:
        streamed = make_step()
        outputs.extend(streamed)
        return streamed

    port.step = step
    return outputs, laws_that_fail(driver, ops, plant, STORED)


def return_of_a_prefix(
    version: str,
    settings: dict[str, Any],
    policy: str = "wait_complete",
    plant: Callable[[Any], None] | None = None,
    ops: tuple[Op, ...] = RETURN,
) -> tuple[int, set[str]]:
    """The most tokens that a request had cached, and the laws that fail."""
    outputs, failed = run(version, settings, policy, ops, plant)
    return max([0, *[output.cached_tokens for output in outputs]]), failed


def free_under_the_thread(port: Any) -> None:
    """Free the host pages of an aborted prefetch although a thread still reads into them."""
    tree = host_of(port)._tree
    retire = tree._retire_ongoing_prefetch

    def free_all(request: Any, _slots: Any, extra: Any) -> Any:
        info = tree.ongoing_prefetch[request]
        info.operation.ack_releases_incomplete_host_indices = False
        return retire(request, info.host_indices, extra)

    tree._retire_ongoing_prefetch = free_all


def break_the_storage(port: Any) -> None:
    def read(*_: Any) -> bool:
        raise KeyError("no such pool")

    host_of(port).storage.read = read


def store_other_content(port: Any) -> None:
    pages = host_of(port).storage.pages
    pages.update({key: [tag + 1 for tag in tags] for key, tags in pages.items()})


def store_other_index_keys(port: Any) -> None:
    pages = host_of(port).storage.pages
    pages.update({key: [tag + 1 for tag in tags] for key, tags in pages.items() if SIDECAR in key})


def forget_host_memory(port: Any) -> None:
    """Lose the pages of a prefetch that is to be freed."""
    controller = host_of(port).storage._controller
    controller.append_host_mem_release = lambda *_args, **_options: None


@pytest.mark.parametrize("settings", OF_MODELS.values(), ids=OF_MODELS)
@pytest.mark.parametrize("version", WITH_STORAGE)
def test_prefix_is_fetched_from_the_storage(on_release, version, settings):
    assert on_release(version, return_of_a_prefix, version, settings) == (len(PREFIX), set())


def test_state_is_fetched_from_the_storage(on_release):
    assert on_release(RELEASE, return_of_a_prefix, RELEASE, OF_STATES) == (len(PREFIX), set())


def test_prefetch_is_given_up_when_its_time_is_over(on_release):
    slow = (*RETURN[:STORED], Inject(fault=STORAGE_SLOW, count=1000), *RETURN[STORED:])

    assert on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, "timeout", None, slow) == (0, set())


@pytest.mark.skipif("0.5.18" not in WITH_STORAGE, reason="0.5.18 is not installed")
def test_time_of_a_prefetch_begins_with_its_request(on_release):
    """0.5.18 measures it from the submission, here before the first step."""
    slow = (Inject(fault=STORAGE_SLOW, count=1000), RETURN[0], Step(count=24))
    outputs, failed = on_release("0.5.18", run, "0.5.18", OF_MODELS["full-attention"], "timeout", slow)

    assert (len(outputs) > 0, failed) == (True, set())


@pytest.mark.parametrize("fault", [STORAGE_FAILS, STORAGE_PARTIAL])
def test_tokens_of_a_page_that_is_not_read_are_computed(on_release, fault):
    ops = (*RETURN[:STORED], Inject(fault=fault, skip=QUERIES, count=1), *RETURN[STORED:])
    cached, failed = on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, "wait_complete", None, ops)

    assert failed == set()
    assert cached < len(PREFIX)


@pytest.mark.parametrize("policy", ["wait_complete", "best_effort"])
@pytest.mark.parametrize("fault", [STORAGE_FAILS, STORAGE_PARTIAL, STORAGE_SLOW])
def test_faults_of_the_storage_are_healthy(on_release, fault, policy):
    with_fault = (
        Inject(fault=fault, skip=3, count=20),
        *RETURN[:STORED],
        Inject(fault=fault, count=2),
        *RETURN[STORED:],
    )

    assert on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, policy, None, with_fault)[1] == set()


@pytest.mark.parametrize("skip", [0, 1, 3, 17])
def test_abort_inside_an_operation_of_the_storage_is_healthy(on_release, skip):
    slow = Inject(fault=STORAGE_SLOW, skip=skip, count=8)
    ops = (*RETURN[:STORED], slow, AGAIN, Step(count=3), Abort(request=0), Step(count=12), Drain())

    assert on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, "wait_complete", None, ops)[1] == set()


@pytest.mark.parametrize(
    ("model", "plant"), [("window", store_other_content), ("sparse-attention", store_other_index_keys)]
)
def test_page_with_other_content_is_reported(on_release, model, plant):
    _, failed = on_release(RELEASE, return_of_a_prefix, RELEASE, OF_MODELS[model], "wait_complete", plant)

    assert "slots_hold_their_prefix" in failed


@pytest.mark.parametrize("fault", [STORAGE_FAILS, STORAGE_PARTIAL])
@pytest.mark.parametrize("skip", [QUERIES + 1, QUERIES + 3])
def test_kv_is_cached_only_with_its_index_keys(on_release, fault, skip):
    """A page of index keys is read behind each page of KV."""
    ops = (*RETURN[:STORED], Inject(fault=fault, skip=skip, count=1), *RETURN[STORED:])
    model = OF_MODELS["sparse-attention"]

    assert on_release(RELEASE, return_of_a_prefix, RELEASE, model, "wait_complete", None, ops)[1] == set()


def test_host_page_of_a_prefetch_without_an_owner_is_reported(on_release):
    ops = (
        *RETURN[:STORED],
        Inject(fault=STORAGE_SLOW, skip=3, count=4),
        AGAIN,
        Step(count=3),
        Abort(request=0),
        Step(count=12),
    )
    _, failed = on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, "wait_complete", forget_host_memory, ops)

    assert "unit_has_one_owner" in failed


@pytest.mark.parametrize("skip", [1, 3])
def test_host_page_that_is_freed_while_a_prefetch_reads_into_it_is_reported(on_release, skip):
    slow = Inject(fault=STORAGE_SLOW, skip=skip, count=40)
    ops = (*RETURN[:STORED], slow, AGAIN, Step(count=3), Abort(request=0), Step(count=6))
    settings = OF_MODELS["full-attention"]

    for plant, laws in ((None, set()), (free_under_the_thread, {"unit_has_one_owner"})):
        _, failed = on_release(RELEASE, return_of_a_prefix, RELEASE, settings, "wait_complete", plant, ops)
        assert laws <= failed
        assert bool(failed) == bool(laws)


def test_error_of_the_storage_is_no_failed_read(on_release):
    _, failed = on_release(RELEASE, return_of_a_prefix, RELEASE, SETTINGS, "wait_complete", break_the_storage)

    assert failed == {"KeyError"}
