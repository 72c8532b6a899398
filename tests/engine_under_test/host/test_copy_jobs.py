"""CopyJobs: their owner, the check of acknowledgements, and the calls of the store."""

import pytest

from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.host.copy_jobs import copy_job_owner
from swarden.invariants.events import Owner
from tests.engine_under_test.host.bench import HostBench

LONG = list(range(100, 120))


def backup() -> HostBench:
    bench = HostBench()
    bench.insert(LONG)
    bench.tier.back_up()
    return bench


@pytest.mark.parametrize(
    ("to_host", "owner"), [(True, Owner("backup", 3)), (False, Owner("load", 3))], ids=["backup", "load"]
)
def test_owner_of_a_transfer_has_its_kind_and_id(to_host, owner):
    assert copy_job_owner(3, to_host=to_host) == owner


def test_acknowledgement_of_an_unknown_transfer_raises():
    bench = backup()
    bench.store.acknowledge(5)

    with pytest.raises(AccountingError) as caught:
        bench.tier.poll()

    assert str(caught.value) == "copy job 5: acknowledged, but it is not in flight"


def test_store_is_not_polled_without_a_transfer_in_flight():
    bench = HostBench()
    bench.store.acknowledge(5)

    bench.tier.poll()

    assert bench.store.acknowledged() != []


@pytest.mark.parametrize("is_in_flight", [False, True], ids=["no job", "a job"])
def test_wait_calls_the_store_only_with_a_transfer_in_flight(is_in_flight):
    bench = backup() if is_in_flight else HostBench()

    bench.tier.wait()

    assert bench.store.num_waits == is_in_flight
