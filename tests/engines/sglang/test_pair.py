"""The two sides of a pair are in one process, where a release has one set of server arguments."""

from functools import partial
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.ops import Drain, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.core.target import prepare
from swarden.harness.engines.sglang.boot import boot
from swarden.harness.engines.sglang.pair import side_systems
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL
from swarden.harness.engines.sglang.scheduler import INTAKES
from swarden.harness.engines.sglang.target import SGLANG
from swarden.harness.kit.settings import replaced
from tests.engines.sglang.conftest import config_of, driver_of, host_of, laws_that_fail, port_of

RELEASE = "0.5.23"  # which has contexts
LATE = Path(__file__).parent / "healthy/prompt-waits-for-pages-of-a-late-transfer.oplog"


def lens_not_transferred():
    """The cached length of each of two equal prompts on a decode side with a prefix tree."""
    prepare(target_of(f"sglang=={RELEASE}"))
    configs = [config_of(role=role, sliding_window=None, decode_tree=role == DECODE) for role in (PREFILL, DECODE)]
    sides = side_systems(boot(RELEASE), configs)
    for _ in range(2):
        for op in (Submit(), *[Step()] * 6):
            for side in sides if isinstance(op, Step) else sides[:1]:
                side.do(op)
    return [room.prefix_len for room in vars(sides[1].port)["_link"].rooms.values()]


def test_decode_side_is_sent_only_what_its_tree_has_not_cached(on_release):
    first, second = on_release(RELEASE, lens_not_transferred)

    assert (first, second > 0) == (0, True)


def keep(port):
    pass


def overwrite_on_host(port):
    """Let each copy to the host write other content."""
    host = host_of(port)._copies.pools[0]
    back_up, (tags,) = host.backup_from_device_all_layer, host_of(port)._on_host.values()

    def back_up_and_change(pool, on_host, *arguments):
        back_up(pool, on_host, *arguments)
        host_of(port)._end_copies()
        tags.update({place: tags[place] + 1 for place in on_host.tolist()})

    host.backup_from_device_all_layer = back_up_and_change


def free_before_the_storage_write(port):
    """Free the host memory of a copy twice."""
    manager = host_of(port)._tree
    trigger = manager._trigger_backup

    def free_and_trigger(req, host_indices, *arguments):
        manager.decode_host_mem_pool.free(host_indices)
        return trigger(req, host_indices, *arguments)

    manager._trigger_backup = free_and_trigger


def misplace_next_copy(is_behind, pages, port):
    """Let each further copy of a request begin so many pages behind the last one, or behind the prompt."""
    manager = host_of(port)._tree
    offload = manager.offload_kv_cache

    def offload_and_move(req):
        if begun := offload(req):
            state = manager.offloaded_state[req]
            state.inc_len = is_behind * state.inc_len + pages * manager.page_size
        return begun

    manager.offload_kv_cache = offload_and_move


skip_a_page = partial(misplace_next_copy, True, 1)
copy_from_the_start = partial(misplace_next_copy, False, 0)


def offloads(decode_tree, plant):
    """The number of pages that a decode side stores of an answer of 12 tokens, and the laws that fail."""
    prefill = config_of(role=PREFILL, sliding_window=None, page_size=2)
    driver = driver_of(RELEASE, prefill, replaced(prefill, role=DECODE, decode_tree=decode_tree, decode_offload=True))
    port, submit = port_of(driver, 1), Submit(recipe=Recipe(stretch=9), max_new_tokens=13)
    plant(port)
    failed = laws_that_fail(driver, (submit, *[Step(), Step(engine=1)] * 6, Drain()))
    return len(host_of(port).storage.pages), failed


def restores(version, plant):
    """The lengths that a decode side with a host tier need not get of a prompt, before and after three long ones."""
    prefill = config_of(role=PREFILL, sliding_window=None, page_size=1, full_pages=160)
    decode = replaced(prefill, role=DECODE, decode_tree=True, host_ratio=4.0, load_back_threshold=1)
    driver = driver_of(version, prefill, decode)
    plant(port_of(driver, 1))
    starts, rounds = (0, 1000, 2000, 3000, 0), [Step(), Step(engine=1)] * 14
    prompts = [Submit(tokens=tuple(range(at + 1, at + (99 if at else 33))), max_new_tokens=4) for at in starts]
    failed = laws_that_fail(driver, [*[op for prompt in prompts for op in (prompt, *rounds)], Drain()])
    return [room.prefix_len for room in vars(port_of(driver, 1))["_link"].rooms.values()], failed


@pytest.mark.parametrize("version", [version for version in ("0.5.18", RELEASE) if version in SGLANG.installed()])
def test_decode_side_restores_a_prefix_from_its_host(on_release, version):
    assert on_release(version, restores, version, keep) == ([0, 0, 0, 0, 32], set())


def test_other_content_on_the_host_of_a_decode_side_is_reported(on_release):
    assert "slots_hold_their_prefix" in on_release(RELEASE, restores, RELEASE, overwrite_on_host)[1]


@pytest.mark.parametrize("decode_tree", [False, True], ids=["no-tree", "tree"])
def test_decode_side_stores_the_whole_pages_of_an_answer(on_release, decode_tree):
    stored, failed = on_release(RELEASE, offloads, decode_tree, keep)

    assert (stored, failed) == (6, set())


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (overwrite_on_host, "slots_hold_their_prefix"),
        (free_before_the_storage_write, "unit_has_one_owner"),
        (skip_a_page, "slots_hold_their_prefix"),
        (copy_from_the_start, "slots_hold_their_prefix"),
    ],
    ids=["other-content", "host-memory-freed-early", "page-left-out", "pages-copied-again"],
)
def test_wrong_offload_is_seen(on_release, plant, law):
    _, failed = on_release(RELEASE, offloads, False, plant)

    assert law in failed


def modes_seen_in_turns():
    """The disaggregation modes that the release has while it runs each side, twice in turns."""
    target_of(f"sglang=={RELEASE}").prepare_process()
    release = boot(RELEASE)
    sides = side_systems(release, [config_of(role=PREFILL), config_of(role=DECODE)])
    return [modes_of_step(release, side.port) for side in (*sides, *sides)]


def modes_of_step(release, engine):
    modes, scheduler = set(), engine.built.scheduler
    with pytest.MonkeyPatch.context() as changed:
        for name in INTAKES:
            intake = getattr(scheduler, name)

            def noting(*arguments, intake=intake, **options):
                modes.add(release.code("get_context")().server_args.disaggregation_mode)
                return intake(*arguments, **options)

            changed.setattr(scheduler, name, noting)
        engine.step()
    return modes


def test_each_side_runs_with_its_own_server_arguments(on_release):
    seen = on_release(RELEASE, modes_seen_in_turns)

    assert seen == [{PREFILL}, {DECODE}, {PREFILL}, {DECODE}]


def digests_of(path):
    return run_log(load_log(path), keep_digests=True).digests


def test_connector_runs_alike_in_another_process(in_process_of):
    first, again = [in_process_of(engine, digests_of, LATE) for engine in (f"sglang=={RELEASE}", "sglang")]

    assert again == first != []
