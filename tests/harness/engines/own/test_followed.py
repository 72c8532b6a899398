"""An audit finds what changed in a large pool without an event: it was forgotten, or the engine went past a ledger."""

from dataclasses import replace

import pytest

from swarden.harness.core.event_log import CAPTURES_PER_AUDIT
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.invariants.events import Owner
from tests.quality.test_incremental_checks import CONFIGS

R9 = Owner("request", 9)
SERVED = (Submit(tokens=tuple(range(1, 20)), max_new_tokens=9), *[Step()] * 3)
LARGE = replace(CONFIGS[0], full_pages=1024, swa_pages=1024)


def unheard(ledgers, act):
    """Move units without the events of that."""
    observer, ledgers.observer, ledgers.anchor.observer = ledgers.observer, None, None
    act(ledgers.anchor)
    ledgers.observer = ledgers.anchor.observer = observer


def paired(handle):
    return next(unit for unit, peer in enumerate(handle.peers["swa"]) if peer)


def swap(free):
    free[500], free[501] = free[501], free[500]


FAULTS = {
    "taken unheard": lambda it: unheard(it, lambda pool: pool.take(2, owner=R9)),
    "freed unheard": lambda it: unheard(it, lambda pool: pool.free([7], owner=R9, cause="")),
    "retaken unheard": lambda it: unheard(it, lambda pool: pool.free(pool.take(3, owner=R9), owner=R9, cause="")),
    "paired unheard": lambda it: unheard(it, lambda _: it._pair(it.followers[0], [900], [900])),
    "unpaired unheard": lambda it: unheard(it, lambda _: it._pair(it.followers[0], [paired(it)], [0])),
    "lost": lambda it: it.anchor._free.remove(500),
    "twice": lambda it: it.anchor._free.insert(300, 400),
    "replaced": lambda it: it.anchor._free.__setitem__(300, 400),
    "swapped": lambda it: swap(it.anchor._free),
    "peer moved": lambda it: it.peers["swa"].__setitem__(paired(it), 700),
}


def captures_until_seen(fault, is_replayed):
    port = SwardenEngine(LARGE)
    port.log.is_replayed, system, ledgers = is_replayed, EngineSystem(port), port.engine.memory.ledgers
    for op in SERVED:
        system.do(op)
        system.capture()
        system.take_events()
    FAULTS[fault](ledgers)
    facts = [[*one.free_units] for one in ledgers.ledgers], [[*peers] for peers in ledgers.peers.values()]
    for count in range(CAPTURES_PER_AUDIT):
        seen = port.capture()
        if ([[*pool.free] for pool in seen.pools[:2]], [[*one.peers] for one in seen.peer_maps or ()]) == facts:
            return count
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_audit_finds_what_changed_without_an_event(fault):
    assert captures_until_seen(fault, is_replayed=False) is not None
    assert captures_until_seen(fault, is_replayed=True) == 0
