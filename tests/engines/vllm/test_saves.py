"""What the store reads when a request has ended, and what is wrong with it; no release is needed."""

from types import SimpleNamespace

import pytest

from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import reported
from swarden.harness.engines.vllm.device import Device
from swarden.harness.engines.vllm.transfers import BlockSave
from swarden.harness.kit.settings import made
from swarden.harness.kit.tags import chain
from swarden.invariants.events import WrongSlot
from swarden.invariants.reference import namespace_tag

TOKENS = [5, 6, 7, 8, 9]
TABLE = [2, 3]


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        pytest.param({}, [], id="right"),
        pytest.param({4: 77}, [WrongSlot(1, 4, 3, True)], id="of-other-tokens"),
        pytest.param({1: 0, 4: 77}, [WrongSlot(1, 1, 2, False)], id="first-of-two"),
    ],
)
def test_first_slot_of_a_save_with_other_kv_is_named(written, wrong):
    device = Device(made(VllmConfig, {"block_size": 4, "external_len": 8, "late_loads": True, "saves": True}))
    device.namespaces[1] = 0
    tags = chain(namespace_tag(0), TOKENS)
    for position, tag in written.items():
        tags[position] = tag
    device.memory.write([8, 9, 10, 11, 12], tags, 0)

    assert device.save(BlockSave("1", TOKENS, [TABLE])) == wrong


def test_ends_of_several_transfers_are_reported_in_the_order_of_their_requests():
    """Not in that of a set of texts, which differs from process to process."""
    ended = {f"{number}-aaaaaaaa" for number in range(1, 30)}
    connector = SimpleNamespace(get_finished=lambda: (ended, None))

    sent, received, failed = reported(connector)

    assert (sent, received, failed) == ([f"{number}-aaaaaaaa" for number in range(1, 30)], [], [])
