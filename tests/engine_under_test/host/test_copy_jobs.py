"""CopyJobs: their owner, the check of acknowledgements, and the calls of the store."""

import pytest

from swarden.engine_under_test.errors import AccountingError
from tests.engine_under_test.host.bench import HostBench

LONG = list(range(100, 120))


def backup() -> HostBench:
    bench = HostBench()
    bench.insert(LONG)
    bench.tier.back_up()
    return bench


def test_acknowledgement_of_an_unknown_transfer_raises():
    bench = backup()
    bench.store.acknowledge(5)

    with pytest.raises(AccountingError) as caught:
        bench.tier.poll()

    assert str(caught.value) == "copy job 5: acknowledged, but it is not in flight"


@pytest.mark.parametrize("is_in_flight", [False, True], ids=["no job", "a job"])
def test_wait_calls_the_store_only_with_a_transfer_in_flight(is_in_flight):
    bench = backup() if is_in_flight else HostBench()

    bench.tier.wait()

    assert bench.store.num_waits == is_in_flight
