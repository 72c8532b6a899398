"""Room for backups: which copies give way to another, and which stay."""

from dataclasses import replace

import pytest

from engine_under_test.events import CopyDropped, Freed, TransferEnded
from engine_under_test.host.transfers import transfer_owner
from tests.engine_under_test.builders import Stretch, locks, stretches
from tests.engine_under_test.host.bench import (
    HOSTED,
    HOSTED_FULL_ONLY,
    HOSTED_SWA_ONLY,
    SELECTIVE,
    HostBench,
    copies,
)

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))


def short_of_host(*, full: int = 32, swa: int = 24, config=HOSTED) -> HostBench:
    return HostBench(replace(config, host_full_pages=full, host_swa_pages=swa))


@pytest.mark.parametrize(("full", "swa"), [pytest.param(2, 24, id="full"), pytest.param(32, 2, id="swa")])
def test_where_the_host_can_have_no_room_nothing_is_begun(full, swa):
    bench = short_of_host(full=full, swa=swa)
    bench.cached(LONG)

    bench.tier.back_up()

    assert (bench.hand.begun, bench.host_free(), locks(bench.tree, "full")) == (
        {},
        {"host full": full, "host swa": swa},
        {(0, 12): 0, (12, 20): 0},
    )


def test_where_there_is_no_room_for_all_what_goes_before_is_copied():
    bench = short_of_host(full=4)

    bench.copied(LONG)

    assert copies(bench.tree) == [Stretch(0, 12, "full swa"), Stretch(12, 20, "")]


def test_the_copy_that_was_used_least_recently_makes_room():
    bench = short_of_host(full=4)
    for tokens in (LONG, OTHER, THIRD):
        bench.copied(tokens[:8])

    assert copies(bench.tree) == [Stretch(0, 8, ""), Stretch(0, 8, "full swa"), Stretch(0, 8, "full swa")]


def test_a_copy_that_was_read_since_stays():
    bench = short_of_host(full=4)
    for tokens in (LONG, OTHER):
        bench.copied(tokens[:8])
    bench.device.leave(bench.device.start([*LONG[:8], 1]))

    bench.copied(THIRD[:8])

    assert copies(bench.tree) == [Stretch(0, 8, "full swa"), Stretch(0, 8, ""), Stretch(0, 8, "full swa")]


def test_where_the_window_is_short_only_the_copy_of_a_window_goes():
    bench = short_of_host(swa=2)
    bench.copied(LONG[:8])

    bench.copied(OTHER[:8])

    assert copies(bench.tree) == [Stretch(0, 8, "full"), Stretch(0, 8, "full swa")]


@pytest.mark.parametrize(
    ("full", "swa", "pools"),
    [pytest.param(2, 24, ("full", "swa"), id="all"), pytest.param(32, 2, ("swa",), id="its window")],
)
def test_a_copy_that_goes_is_reported(full, swa, pools):
    bench = short_of_host(full=full, swa=swa)
    bench.copied(LONG[:8])
    [node] = bench.nodes()

    bench.copied(OTHER[:8])

    assert bench.heard.of(CopyDropped) == [CopyDropped(node.id, pools)]


@pytest.mark.parametrize(
    ("full", "swa", "held"),
    [
        pytest.param(3, 24, ["full swa", ""], id="it stays"),
        pytest.param(32, 3, ["full", "full swa"], id="but for its window"),
    ],
)
def test_the_copy_that_a_backup_goes_on_from_makes_no_room_for_it(full, swa, held):
    bench = short_of_host(full=full, swa=swa)
    bench.copied(LONG[:8])

    bench.copied(LONG[:16])

    assert [copy.live for copy in copies(bench.tree)] == held


@pytest.mark.parametrize(
    ("config", "held"),
    [
        pytest.param(HOSTED, ["full swa", "full swa", "", "full swa"], id="hybrid"),
        pytest.param(HOSTED_FULL_ONLY, ["full", "", "full"], id="full only"),
    ],
)
def test_for_what_never_fits_behind_what_it_goes_on_from_no_copy_is_given_up(config, held):
    bench = HostBench(replace(config, host_full_pages=4))
    for tokens in (LONG[:12], OTHER[:4], LONG):
        bench.copied(tokens)

    assert ([copy.live for copy in copies(bench.tree)], bench.heard.of(CopyDropped)) == (held, [])


def test_for_what_never_fits_beside_what_a_load_reads_no_copy_is_given_up():
    """Of four pages two are read, and two are not enough for three."""
    bench = HostBench(replace(HOSTED_FULL_ONLY, host_full_pages=4))
    bench.demoted(OTHER[:8])
    bench.copied(LONG[:8])
    bench.load([*OTHER[:8], 1])
    bench.cached(THIRD[:12])

    bench.tier.back_up()

    assert ([copy.live for copy in copies(bench.tree)], bench.heard.of(CopyDropped)) == (["full", "full", ""], [])


def test_a_copy_that_stayed_makes_room_for_something_smaller():
    """What was to go for a backup in vain is still the first to go."""
    bench = HostBench(replace(HOSTED_FULL_ONLY, host_full_pages=2))
    for tokens in (LONG[:8], OTHER[:12], THIRD[:4]):
        bench.copied(tokens)

    assert [copy.live for copy in copies(bench.tree)] == ["", "", "full"]


def test_in_a_window_alone_nothing_goes_before_a_copy_that_it_would_have_to_fit_behind():
    bench = HostBench(replace(HOSTED_SWA_ONLY, host_swa_pages=4))
    for tokens in (LONG[:12], OTHER[:4], LONG):
        bench.copied(tokens)

    assert [copy.live for copy in copies(bench.tree)][1] == "swa"


def test_a_copy_that_was_passed_over_makes_room_later():
    bench = short_of_host(full=3)
    bench.copied(LONG[:8])
    bench.copied(LONG[:16])

    bench.copied(OTHER[:8])

    assert [copy.live for copy in copies(bench.tree)] == ["", "", "full swa"]


def test_what_is_on_the_host_alone_leaves_the_tree_with_its_copy():
    bench = short_of_host(full=2)
    bench.demoted(LONG[:8])

    bench.copied(OTHER[:8])

    assert stretches(bench.tree) == [Stretch(0, 8, "full swa")]


def test_a_copy_goes_before_those_that_it_goes_on_from():
    bench = short_of_host(full=5)
    bench.copied(LONG)

    bench.copied(OTHER[:8])

    assert copies(bench.tree) == [Stretch(0, 12, "full swa"), Stretch(12, 20, ""), Stretch(0, 8, "full swa")]


def test_a_copy_without_what_is_before_it_is_given_up():
    """The copy of [0, 8) makes room while that of [8, 16), which goes on from it, is under way."""
    bench = short_of_host(full=4, config=SELECTIVE)
    bench.cached(LONG[:16])
    upper, lower = bench.nodes()[0], bench.nodes()[-1]
    bench.tier.found(upper)
    bench.tier.back_up()
    bench.settle()
    bench.tier.found(lower)
    bench.tier.back_up()
    bench.tier.flush()

    bench.settle()

    assert ([copy.live for copy in copies(bench.tree)], bench.host_free(), bench.heard.of(TransferEnded)[-1]) == (
        ["", ""],
        {"host full": 4, "host swa": 24},
        TransferEnded(2, None),
    )


def test_what_is_given_up_at_once_says_why():
    bench = HostBench()
    bench.copied(LONG[:4])
    bench.cached(LONG[:8])
    bench.tier.back_up()
    bench.tier.flush()

    bench.settle()

    owner = transfer_owner(2, to_host=True)
    assert [freed.cause for freed in bench.heard.of(Freed) if freed.owner == owner] == ["backup unused"] * 2


def test_a_flush_gives_up_every_copy_and_what_only_they_kept():
    bench = HostBench()
    bench.copied(LONG)
    bench.demoted(OTHER)
    bench.copied(THIRD)

    bench.tier.flush()

    assert (copies(bench.tree), bench.host_free()) == (
        [Stretch(0, 12, ""), Stretch(12, 20, "")],
        {"host full": 32, "host swa": 24},
    )
