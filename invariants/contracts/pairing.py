"""The engine reports each change of a peer map.

On a server: A later free releases the windowed page of another request: its answer is wrong, or the scheduler ends.
"""

from collections.abc import Sequence

from swarden.invariants.events import Paired
from swarden.invariants.following import differing
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, unit_ref


class PairingCode(Code):
    CHANGED_ALONE = "its peer is {peer}, but it was last paired with {paired_with}"


@invariant(When.OP, needs=("peer_maps", "Paired"))
def peers_change_only_by_pairing(change: Transition) -> Evidence:
    """The peer of a unit changes only when the two are paired, or their pairing ends."""
    for before, after in zip(change.before.peer_maps or (), change.after.peer_maps or (), strict=True):
        paired = {
            unit: peer
            for event in change.events_of(Paired)
            if event.to_pool == after.to_pool
            for unit, peer in zip(event.units, event.peers, strict=True)
        }
        for unit in sorted(paired.keys() | differing(before.peers, after.peers)):
            peer, want = _peer(after.peers, unit), paired.get(unit, _peer(before.peers, unit))
            if peer != want:
                subject, to_pool = unit_ref(change.after.pool(after.from_pool), unit), change.after.pool(after.to_pool)
                refs = [unit_ref(to_pool, one) if one else None for one in (peer, want)]
                yield found(subject, PairingCode.CHANGED_ALONE, peer=refs[0], paired_with=refs[1])


def _peer(peers: Sequence[int], unit: int) -> int:
    """The peer of a unit; 0 if it has none, or if the map is too short for it."""
    return peers[unit] if unit < len(peers) else 0
