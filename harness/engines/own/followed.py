"""The free lists and the peers of our engine, read where events have marked a change since the last walk, or whole."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.paired import PairedLedgers
from swarden.invariants.events import Paired, Taken
from swarden.invariants.following import Following, Peers, Units, differing
from swarden.invariants.reuse import same_or_new
from swarden.invariants.view import PeerMap


class LedgerWalk:
    """The `peers` by pool and their `maps`, as the newest walk read them; it reads small pools whole, an audit all."""

    def __init__(self, ledgers: PairedLedgers) -> None:
        self._ledgers, self._is_audit = ledgers, True
        self._taken, self._paired = Counter[str](), defaultdict[str, set[int]](set)
        self.peers = {pool: peers[:] for pool, peers in ledgers.peers.items()}
        self.maps = tuple([PeerMap(ledgers.anchor.name, pool, peers[:]) for pool, peers in self.peers.items()])

    def note(self, event: Taken | Paired) -> None:
        if isinstance(event, Taken):
            self._taken[event.pool] += len(event.units)
        else:
            self._paired[event.to_pool].update(event.units)

    def visit_peers(self, *, is_audit: bool) -> set[int]:
        """Begin a walk; returns the handles whose peer changed since the previous one."""
        self._is_audit, handles, maps = is_audit, set[int](), []
        for former in self.maps:
            pool, peers = former.to_pool, former.peers
            now, known, marked = self._ledgers.peers[pool], self.peers[pool], self._paired[pool]
            if is_audit or not isinstance(peers, Peers):
                marked = differing(known, now)
            if changed := {handle: now[handle] for handle in marked if now[handle] != known[handle]}:
                if isinstance(peers, Peers):
                    peers = peers.following(changed)
                else:  # a live engine reports no marks
                    peers = Peers(now) if self._paired[pool] and len(now) > Following.LEAST else now[:]
                for handle, peer in changed.items():
                    known[handle] = peer
                handles.update(changed)
            maps.append(former._replace(peers=peers) if changed else former)
        self._paired.clear()
        self.maps = tuple(maps) if handles else self.maps
        return handles

    def free_units(self, ledger: Ledger, old: Sequence[int]) -> Sequence[int]:
        """The free units: of the `old` ones as many as were taken have left at most, at one end; others came behind.

        All are read if the last one of those that stayed is not where it was.
        """
        taken = self._taken.pop(ledger.name, 0)
        if ledger.capacity < Following.LEAST:
            return same_or_new(old, ledger.free_units)
        if isinstance(old, Units):
            first, end = (0, len(old) - taken) if ledger.newest_first else (taken, len(old))
            if first >= end:
                return old.following(0, 0, ledger.free_units)
            last = ledger.freed_last(max(0, ledger.num_free - (end - first) + 1))
            if last and last[0] == old[end - 1]:
                now = old.following(first, end, last[1:]) if taken or last[1:] else old
                if not self._is_audit or now[:] == ledger.free_units:
                    return now
        return Units(ledger.free_units)
