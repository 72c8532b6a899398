"""The two sides of a pair are in one process, where a release has one set of server arguments."""

import pytest

from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import prepare
from swarden.harness.engines.sglang.boot import boot
from swarden.harness.engines.sglang.config import DECODE, PREFILL, SglangConfig
from swarden.harness.engines.sglang.pair import side_systems
from swarden.harness.engines.sglang.scheduler import INTAKES

RELEASE = "0.5.23"  # which has contexts


def lens_not_transferred():
    """The cached length of each of two equal prompts on a decode side with a prefix tree."""
    prepare(target_of(f"sglang=={RELEASE}"))
    configs = [SglangConfig(role=role, sliding_window=None, decode_tree=role == DECODE) for role in (PREFILL, DECODE)]
    sides = side_systems(boot(RELEASE), configs)
    for _ in range(2):
        for op in (Submit(), *[Step()] * 6):
            for side in sides if isinstance(op, Step) else sides[:1]:
                side.do(op)
    return [room.prefix_len for room in vars(sides[1].port)["_link"].rooms.values()]


def test_decode_side_is_sent_only_what_its_tree_has_not_cached(on_release):
    first, second = on_release(RELEASE, lens_not_transferred)

    assert (first, second > 0) == (0, True)


def modes_seen_in_turns():
    """The disaggregation modes that the release has while it runs each side, twice in turns."""
    target_of(f"sglang=={RELEASE}").prepare_process()
    release = boot(RELEASE)
    sides = side_systems(release, [SglangConfig(role=PREFILL), SglangConfig(role=DECODE)])
    return [modes_of_step(release, side.port) for side in (*sides, *sides)]


def modes_of_step(release, engine):
    modes, scheduler = set(), engine.built.scheduler
    with pytest.MonkeyPatch.context() as changed:
        for name in INTAKES:
            intake = getattr(scheduler, name)

            def noting(*arguments, intake=intake, **options):
                modes.add(release.part("get_context")().server_args.disaggregation_mode)
                return intake(*arguments, **options)

            changed.setattr(scheduler, name, noting)
        engine.step()
    return modes


def test_each_side_runs_with_its_own_server_arguments(on_release):
    seen = on_release(RELEASE, modes_seen_in_turns)

    assert seen == [{PREFILL}, {DECODE}, {PREFILL}, {DECODE}]
