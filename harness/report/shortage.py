"""What requests need of each pool at a retraction or an end for want of memory, and what is missing."""

from collections import Counter
from collections.abc import Collection

from swarden.invariants.conservation import conservation_of
from swarden.invariants.events import REQUEST_KIND, Finished, FinishReason, Retracted
from swarden.invariants.kinds import Place
from swarden.invariants.view import Snapshot


def shortage_text(event: object, before: Snapshot) -> str:
    """By pool, the units for the next tokens, as in "full needs 2, 0 free, 1 evictable: lacks 1"; "" without KV.

    They are those of a request that has ended for want of memory, or of all that run where one is retracted.
    """
    requests: Collection[int] = ()
    if isinstance(event, Finished) and event.reason == FinishReason.OUT_OF_MEMORY:
        requests = (event.request_id,)
    elif isinstance(event, Retracted):
        requests = [request.id for request in before.requests or () if request.place == Place.RUNNING]
    needed = Counter[str]()
    for record in before.records or ():
        if record.owner.kind == REQUEST_KIND and record.owner.id in requests:
            length = record.launched_len + 1 + before.limits.lookahead_len
            for component, units in zip(before.components, record.units, strict=True):
                needed[component.pool] += max(0, -(-component.slot_len(length) // component.page_size) - len(units))
    texts = []
    for pool, count in needed.items():
        terms = conservation_of(before.pool_by_name[pool])
        lack = count - terms.free - terms.evictable
        text = f"{pool} needs {count}, {terms.free} free, {terms.evictable} evictable"
        texts.append(f"{text}: lacks {lack}" if lack > 0 else text)
    return "; ".join(texts)
