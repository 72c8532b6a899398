"""The fake client reads on until a fault is armed."""

from fakes.client import FakeClient
from fakes.faults import FaultPlan


def test_a_client_reads_on_until_it_hangs_up():
    plan = FaultPlan(["client.gone"])
    client = FakeClient(plan)
    plan.arm("client.gone", skip=1)

    assert [client.reads() for _ in range(3)] == [True, False, True]
