"""The slots and pages that the entries of a forward pass read and write."""

from array import array
from collections.abc import Sequence

from swarden.engine_under_test.ports import ForwardBatch, PageSpan, PoolPages


def slot_of(pages: Sequence[int], span: PageSpan, position: int, page_size: int) -> int:
    """The slot of a request's position."""
    page, offset = divmod(position - span.first_position, page_size)
    return pages[span.begin + page] * page_size + offset


def written_slots(batch: ForwardBatch, pool: PoolPages, pages: Sequence[int]) -> "array[int]":
    """The slots of all computed positions, or of all stored states, entry by entry."""
    if pool.states:
        return array("q", [slot for of_entry in pool.states for slot in of_entry.slots])
    page_size, slots = batch.page_size, array("q")
    for entry, span in zip(batch.entries, pool.spans, strict=True):
        for begin in (entry.start, *range(entry.start - entry.start % page_size + page_size, entry.end, page_size)):
            slot = slot_of(pages, span, begin, page_size)
            slots.extend(range(slot, slot + min(page_size - begin % page_size, entry.end - begin)))
    return slots


def written_pages(batch: ForwardBatch, pool: PoolPages, pages: Sequence[int]) -> list[tuple[int, ...]]:
    """The pages that each entry writes, in order."""
    if pool.states:
        return [tuple(dict.fromkeys(slot // pool.num_slots for slot in of_entry.slots)) for of_entry in pool.states]
    written = []
    for entry, span in zip(batch.entries, pool.spans, strict=True):
        first = span.begin + (entry.start - span.first_position) // batch.page_size
        written.append(tuple(pages[first : span.begin + span.num_pages]))
    return written


def readers(pool: PoolPages, pages: set[int]) -> list[int]:
    """The indices of the entries that read one of these pages."""
    listed = pool.pages.tolist()
    return [
        index
        for index, span in enumerate(pool.spans)
        if not pages.isdisjoint(listed[span.begin : span.begin + span.num_pages])
    ]
