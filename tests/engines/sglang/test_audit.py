"""An audit finds nodes of SGLang that changed in place, without a new key or tensor."""

import pytest

from swarden.harness.core.event_log import CAPTURES_PER_AUDIT
from swarden.harness.core.ops import Step, Submit
from tests.engines.sglang.conftest import config_of, driver_of, port_of

SERVED = (Submit(tokens=tuple(range(1, 20)), max_new_tokens=3), *[Step()] * 8)


FAULTS = {
    "slot": lambda _, slots: slots[0].add_(1),
    "windowed slot": lambda _, slots: slots[1][-1:].zero_(),
    "token": lambda node, _: node.key.token_ids.__setitem__(0, 77),
    "length": lambda node, _: setattr(node.key, "limit", len(node.key) - 1),
    "slots swapped": lambda _, slots: slots[0][:2].copy_(slots[0][:2].flip(0)),
}


def seen_after(version, fault, is_replayed):
    """The number of captures until the nodes differ from those before a fault, and whether they did without one."""
    driver = driver_of(version, config_of(page_size=1))
    for op in SERVED:
        driver.apply(op)
    port = port_of(driver)
    port.log.is_replayed = is_replayed
    before = port.capture().nodes
    same = [port.capture().nodes == before for _ in range(CAPTURES_PER_AUDIT)]
    nodes = [*port.memory.tree.root_node.children.values()]
    for node in nodes:
        nodes += node.children.values()
    FAULTS[fault](nodes[-1], [nodes[-1].component_data[kind].value for kind in port._tree._of_kv])
    differ = [port.capture().nodes != before for _ in range(CAPTURES_PER_AUDIT)]
    return all(same), differ.index(True) if any(differ) else None


@pytest.mark.parametrize("fault", FAULTS)
def test_audit_finds_a_node_changed_in_place(on_release, fault):
    is_same, captures = on_release("0.5.23", seen_after, "0.5.23", fault, False)

    assert is_same
    assert captures is not None
    assert on_release("0.5.23", seen_after, "0.5.23", fault, True) == (True, 0)
