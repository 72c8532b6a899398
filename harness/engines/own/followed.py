"""The free lists and the peers of our engine, read where they may have changed since the previous walk, or whole."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import compress
from operator import ne

from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.paired import PairedLedgers
from swarden.invariants.events import Paired, Taken
from swarden.invariants.following import Following, Peers, Units
from swarden.invariants.reuse import same_or_new
from swarden.invariants.view import PeerMap

COMPARED_AT_ONCE = 64  # peers


class Moves:
    """What may have changed since a walk: by pool the number of taken units, and the handles that were paired.

    An audit walks over all free lists and peers, whatever the events say.
    """

    KINDS = (Taken, Paired)

    def __init__(self) -> None:
        self.is_audit = True
        self.taken = Counter[str]()
        self.paired = defaultdict[str, set[int]](set)

    def note(self, event: Taken | Paired) -> None:
        if isinstance(event, Taken):
            self.taken[event.pool] += len(event.units)
        else:
            self.paired[event.to_pool].update(event.units)

    def forget(self) -> None:
        self.taken.clear()
        self.paired.clear()


class PeerWalk:
    """The peers at the newest walk, `known` by pool, and `maps` of them."""

    def __init__(self, ledgers: PairedLedgers) -> None:
        self._ledgers = ledgers
        self.known = {pool: peers[:] for pool, peers in ledgers.peers.items()}
        kind = Peers if ledgers.anchor.capacity >= Following.LEAST else copy
        self.maps = tuple([PeerMap(ledgers.anchor.name, pool, kind(peers)) for pool, peers in self.known.items()])

    def visit(self, moves: Moves) -> set[int]:
        """The handles whose peer changed since the previous walk."""
        handles, maps = set[int](), list[PeerMap]()
        for one in self.maps:
            now, known = self._ledgers.peers[one.to_pool], self.known[one.to_pool]
            is_whole = moves.is_audit or not isinstance(one.peers, Peers)
            marked = _differing(known, now) if is_whole else moves.paired[one.to_pool]
            changed = {handle: now[handle] for handle in marked if now[handle] != known[handle]}
            for handle, peer in changed.items():
                known[handle] = peer
            handles.update(changed)
            if changed:
                peers = one.peers.following(changed) if isinstance(one.peers, Peers) else now[:]
                one = one._replace(peers=peers)
            maps.append(one)
        if handles:
            self.maps = tuple(maps)
        return handles


def _differing(old: Sequence[int], new: Sequence[int]) -> Iterator[int]:
    """The indices at which two maps of one length differ. Equal blocks are skipped with one comparison."""
    for first in range(0, len(new) if old != new else 0, COMPARED_AT_ONCE):
        then, now = old[first : first + COMPARED_AT_ONCE], new[first : first + COMPARED_AT_ONCE]
        if then != now:
            yield from compress(range(first, first + len(now)), map(ne, then, now))


def free_units(ledger: Ledger, old: Sequence[int], moves: Moves) -> Sequence[int]:
    """The free units: of the `old` ones those that were taken at most have left, at one end, and others came behind.

    All are read if the last one of those that stayed is not where it was.
    """
    if ledger.capacity < Following.LEAST:
        return same_or_new(old, ledger.free_units)
    if isinstance(old, Units):
        taken = moves.taken[ledger.name]
        first, end = (0, len(old) - taken) if ledger.newest_first else (taken, len(old))
        if first >= end:
            return old.following(0, 0, ledger.free_units)
        last = ledger.freed_last(max(0, ledger.num_free - (end - first) + 1))
        if last and last[0] == old[end - 1]:
            now = old.following(first, end, last[1:]) if taken or last[1:] else old
            if not moves.is_audit or now[:] == ledger.free_units:
                return now
    return Units(ledger.free_units)
