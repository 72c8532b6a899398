"""An audit finds nodes of SGLang that changed in place, or past a mark that the adapter forgot to compare."""

import pytest

from swarden.harness.core.event_log import CAPTURES_PER_AUDIT
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.patch import Hunk, Patch
from tests.engines.sglang.conftest import config_of, driver_of, port_of

SERVED = (Submit(tokens=tuple(range(1, 20)), max_new_tokens=3), *[Step()] * 8)
FAULTS = {  # the mark that is forgotten, and what changes a node with its parts of KV
    "slot": ("", lambda _, parts: parts[0].value[:1].add_(1)),
    "windowed slot": ("", lambda _, parts: parts[1].value[-1:].zero_()),
    "token": ("", lambda node, _: node.key.token_ids.__setitem__(0, 77)),
    "length": ("", lambda node, _: setattr(node.key, "limit", len(node.key) - 1)),
    "slots swapped": ("", lambda _, parts: parts[0].value[:2].copy_(parts[0].value[:2].flip(0))),
    "key": ("node.key", lambda node, _: setattr(node, "key", node.key[:-1])),
    "child": ("*node.children.values()", lambda node, _: node.parent.children.clear()),
    "value": ("data.value", lambda _, parts: setattr(parts[0], "value", parts[0].value.flip(0))),
    "lock": ("data.lock_ref", lambda _, parts: setattr(parts[0], "lock_ref", parts[0].lock_ref + 1)),
    "window": ("self._kinds", lambda _, parts: setattr(parts[1], "value", None)),
}


def seen_after(version, fault, is_replayed):
    """The number of captures until the nodes differ from those before a fault, and whether they did without one."""
    mark, act = FAULTS[fault]
    hunks = (Hunk("swarden.harness.engines.sglang.nodes:UnifiedNodes.marks", mark, "()"),)
    with Patch(fault, hunks if mark else ()).planted():
        driver = driver_of(version, config_of(page_size=1))
        for op in SERVED:
            driver.apply(op)
        port = port_of(driver)
        port.log.is_replayed = is_replayed
        port.audit()
        before = port.capture().nodes
        same = [port.capture().nodes == before for _ in range(CAPTURES_PER_AUDIT)]
        nodes = [*port.memory.tree.root_node.children.values()]
        for node in nodes:
            nodes += node.children.values()
        act(nodes[-1], [nodes[-1].component_data[kind] for kind in port._tree._of_kv])
        differ = [port.capture().nodes != before for _ in range(CAPTURES_PER_AUDIT)]
    return all(same), differ.index(True) if any(differ) else None


@pytest.mark.parametrize("fault", FAULTS)
def test_audit_finds_a_node_that_changed_without_a_mark(on_release, fault):
    is_same, captures = on_release("0.5.23", seen_after, "0.5.23", fault, False)

    assert is_same
    assert captures
    assert on_release("0.5.23", seen_after, "0.5.23", fault, True) == (True, 0)
