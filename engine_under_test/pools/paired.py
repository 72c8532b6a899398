"""The KV pools of one engine, taken and freed together, with the map of peers between their pages.

A request and a tree node name their pages by one pool only, the anchor.  The anchor is the first pool that keeps the
whole prefix, or the only pool.  The page of another pool that holds the same tokens is the peer of the anchor page.
Only this class writes the peer map.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence

from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.ports import Observer
from swarden.invariants.events import Owner, Paired

Need = Mapping[str, int]  # pages by pool
Places = Mapping[str, Sequence[int]]  # indices of pages, by pool

NO_PAGE = 0  # the padding page; as a peer or a handle it means that there is no page


class PairedLedgers:
    """Takes, moves and frees pages in all KV pools at once; handles are anchor pages.

    Two methods free pages, each with checks: the pages of handles in all pools but those that they lack (`free`), and
    their pages in one pool (`free_alone`).
    """

    def __init__(self, ledgers: Sequence[Ledger], *, observer: Observer | None = None) -> None:
        self.anchor, *followers = ledgers
        self.followers = tuple(followers)
        self.observer = observer
        self.peers = {follower.name: array("q", [0]) * (self.anchor.capacity + 1) for follower in self.followers}

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        return (self.anchor, *self.followers)

    def pages_of(self, pool: str, handles: Sequence[int]) -> list[int]:
        """The pages of `pool` for handles, NO_PAGE where there is none."""
        if pool == self.anchor.name:
            return list(handles)
        peers = self.peers[pool]
        return [peers[handle] for handle in handles]

    def without(self, pool: str, handles: Sequence[int]) -> list[int]:
        """The handles without their pages in `pool`: NO_PAGE for each if it is the anchor."""
        return [NO_PAGE] * len(handles) if pool == self.anchor.name else list(handles)

    def take(self, count: int, *, owner: Owner, places: Places | None = None) -> list[int]:
        """Take `count` pages in every pool, or none in any: raises PoolExhausted for the short pool.

        A pool in `places` has pages at these places of [0, count) only.  Handles without a page of the anchor are
        NO_PAGE.
        """
        everywhere, places = range(count), places or {}
        for ledger in self.ledgers:
            ledger.check(len(places.get(ledger.name, everywhere)), owner=owner)
        handles, of_anchor = [NO_PAGE] * count, places.get(self.anchor.name, everywhere)
        for place, page in zip(of_anchor, self.anchor.take_checked(len(of_anchor), owner=owner), strict=True):
            handles[place] = page
        for follower in self.followers:
            paired = [handles[place] for place in places.get(follower.name, everywhere)]
            pages = follower.take_checked(len(paired), owner=owner)
            self._pair(follower, paired, pages)
        return handles

    def take_apart(self, need: Need, *, owner: Owner) -> dict[str, list[int]]:
        """Take unpaired pages in every pool, or none in any: raises PoolExhausted for the short pool."""
        for ledger in self.ledgers:
            ledger.check(need[ledger.name], owner=owner)
        return {ledger.name: ledger.take_checked(need[ledger.name], owner=owner) for ledger in self.ledgers}

    def join(
        self, pool: str, handles: Sequence[int], pages: Sequence[int], *, from_owner: Owner, to_owner: Owner
    ) -> list[int]:
        """Give unpaired pages to another owner, with handles that have none in that pool; returns the handles.

        Pages of the anchor are the new handles; other pages become peers.
        """
        for ledger in self.ledgers:
            if ledger.name == pool:
                ledger.give(pages, from_owner=from_owner, to_owner=to_owner)
                if ledger is not self.anchor:
                    self._pair(ledger, handles, pages)
        return list(pages if pool == self.anchor.name else handles)

    def give(self, handles: Sequence[int], *, from_owner: Owner, to_owner: Owner) -> None:
        """Give all pages of the handles to another owner."""
        self.anchor.give([handle for handle in handles if handle], from_owner=from_owner, to_owner=to_owner)
        for follower in self.followers:
            pages = [page for page in self.pages_of(follower.name, handles) if page]
            follower.give(pages, from_owner=from_owner, to_owner=to_owner)

    def free(
        self, handles: Sequence[int], *, owner: Owner, cause: str, after: int = 0, lacks: Collection[str] = ()
    ) -> None:
        """Free the handles' pages in every pool but those in `lacks`, in which they have none.

        Raises AccountingError if a page is missing in another pool, or present in a pool of `lacks`.
        """
        if self.anchor.name not in lacks:
            self._check_handles(handles, cause)
        for follower in self.followers:
            if follower.name in lacks:
                self._check_no_peers(follower, handles, f"freed alone ({cause}) by {owner}")
            else:
                self._free_peers(follower, handles, owner=owner, cause=cause, after=after)
        if self.anchor.name in lacks:
            if any(handles):
                raise AccountingError(f"{self.anchor.name} pages {list(handles)}: freed as dead ({cause}) by {owner}")
            return
        self.anchor.free(handles, owner=owner, cause=cause, after=after)

    def free_alone(self, pool: str, handles: Sequence[int], *, owner: Owner, cause: str, after: int = 0) -> list[int]:
        """Free the handles' pages in one pool; returns the remaining handles."""
        for follower in self.followers:
            if follower.name == pool:
                self._free_peers(follower, handles, owner=owner, cause=cause, after=after)
            elif pool == self.anchor.name:
                self._check_no_peers(follower, handles, f"freed alone ({cause}) by {owner}")
        if pool == self.anchor.name:
            self._check_handles(handles, cause)
            self.anchor.free(handles, owner=owner, cause=cause, after=after)
        return self.without(pool, handles)

    def take_over(
        self, pool: str, kept: Sequence[int], incoming: Sequence[int], *, from_owner: Owner, to_owner: Owner
    ) -> None:
        """Move the peers of `incoming` in one pool to the handles `kept`, which had no peers and keep their owner."""
        for follower in self.followers:
            if follower.name == pool:
                self._check_no_peers(follower, kept, f"takes over a {pool} page")
                pages = self.pages_of(pool, incoming)
                self._pair(follower, incoming, [NO_PAGE] * len(incoming))
                self._pair(follower, kept, pages)
                follower.give(pages, from_owner=from_owner, to_owner=to_owner)

    def complete(self, launch: int) -> None:
        for ledger in self.ledgers:
            ledger.complete(launch)

    def _free_peers(self, follower: Ledger, handles: Sequence[int], *, owner: Owner, cause: str, after: int) -> None:
        pages = self.pages_of(follower.name, handles)
        if not all(pages):
            handle = handles[pages.index(NO_PAGE)]
            raise AccountingError(
                f"{self.anchor.name} page {handle}: freed with its {follower.name} page ({cause}) by {owner}, "
                "yet it has none"
            )
        self._pair(follower, handles, [NO_PAGE] * len(handles))
        follower.free(pages, owner=owner, cause=cause, after=after)

    def _check_no_peers(self, follower: Ledger, handles: Sequence[int], deed: str) -> None:
        for handle, page in zip(handles, self.pages_of(follower.name, handles), strict=True):
            if page:
                raise AccountingError(
                    f"{self.anchor.name} page {handle}: {deed}, yet it has {follower.name} page {page}"
                )

    def _pair(self, follower: Ledger, handles: Sequence[int], pages: Sequence[int]) -> None:
        peers = self.peers[follower.name]
        for handle, page in zip(handles, pages, strict=True):
            peers[handle] = page
        if self.observer and handles:
            self.observer.notice(Paired(self.anchor.name, follower.name, tuple(handles), tuple(pages)))

    def _check_handles(self, handles: Sequence[int], cause: str) -> None:
        if not all(handles):
            raise AccountingError(f"{self.anchor.name} page {NO_PAGE}: the padding page was freed ({cause})")


def shortage(ledgers: Sequence[Ledger], need: Need) -> dict[str, int]:
    """By pool, how many free pages are missing for `need`."""
    short = {ledger.name: need[ledger.name] - ledger.num_free for ledger in ledgers}
    return {pool: count for pool, count in short.items() if count > 0}
