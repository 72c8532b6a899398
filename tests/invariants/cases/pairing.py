"""Peers that changed without a pairing."""

from swarden.invariants.contracts.pairing import PairingCode, peers_change_only_by_pairing
from swarden.invariants.violation import found
from tests.invariants.builders import after, broken, page, peers


def alone(unit, peer, paired_with):
    return found(page("full", unit), PairingCode.CHANGED_ALONE, peer=peer, paired_with=paired_with)


CASES = [
    broken(
        peers_change_only_by_pairing,
        "changed-and-removed",
        after(peer_maps=peers({1: 4, 6: 0})),
        alone(1, page("swa", 4), None),
        alone(6, None, page("swa", 4)),
    )
]
