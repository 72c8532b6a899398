"""Bugs that only an engine of another design can have, each with a corrupted snapshot in which a law detects it."""

from swarden.harness.search.mutants.unplanted import Excluded

SLOTS_OF_A_PAGE_LEAD_APART = Excluded(
    "S90",
    "sglang pull 27779, in an engine that maps slots: some slots of a page kept the peers of the page's last owner",
    "a page has one peer here, so its slots cannot lead to different pages",
    "slot_peers_keep_their_offset",
    "peers-in-two-pages",
)

READERS_ARE_MISCOUNTED = Excluded(
    "S91",
    "an engine that only counts a block's readers: a reader that has left is still counted, or two count as one",
    "a receipt names its holder here, so each reader is known and no count can be wrong",
    "cached_units_count_their_readers",
    "one-too-many-and-one-too-few",
)

FOLLOWER_PAGE_IS_LOST = Excluded(
    "S92",
    "an engine whose windowed pages have owners of their own: one stays when the full page that led to it is freed",
    "the owner of a windowed page is the owner of its handle here, so a windowed page without a handle has no owner",
    "held_follower_units_are_peers",
    "no-peer",
)
