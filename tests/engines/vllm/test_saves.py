"""What the store reads when a request has ended, and what is wrong with it; no release is needed."""

from types import SimpleNamespace

import pytest

from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import reported
from swarden.harness.engines.vllm.device import Device
from swarden.harness.engines.vllm.parts.store import Store
from swarden.harness.engines.vllm.passes import BlockSave
from swarden.harness.kit.settings import made
from swarden.harness.kit.tags import chain
from swarden.invariants.events import WrongSlot
from swarden.invariants.reference import namespace_tag

EXTRA = {"len": 8, "block_size": 4, "is_late": True, "has_states": False, "saves": True}
TOKENS = [5, 6, 7, 8, 9]
TABLE = [2, 3]


class StoreAlone(Store):
    """The store without the base class of a release."""

    def __init__(self):
        self._extra, self._loads_whole = EXTRA, True
        self._starts, self._loads, self._saves, self._scheduled = {}, [], [], set()


@pytest.mark.parametrize(("scheduled", "saved"), [({}, []), ({"1": 5}, TOKENS)], ids=["loading", "computed"])
def test_saved_are_the_tokens_of_a_request_that_a_pass_has_had(scheduled, saved):
    store = StoreAlone()
    request = SimpleNamespace(
        request_id="1", num_prompt_tokens=5, num_computed_tokens=5, num_output_placeholders=0, all_token_ids=TOKENS
    )
    store.get_num_new_matched_tokens(request, 0)
    store.build_connector_meta(SimpleNamespace(num_scheduled_tokens=scheduled))

    store.request_finished_all_groups(request, [TABLE])

    [save] = store.build_connector_meta(SimpleNamespace(num_scheduled_tokens={})).saves
    assert save == BlockSave("1", saved, [TABLE])


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
