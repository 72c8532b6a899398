"""Attention over paged KV: the slots that a pass writes, the pages that it reads, and how entries are batched.

request's positions   0 ........ first_position ........ start ........ end
its pages in a pool              |page|page|page|page|page|page|
                                  ^ gathered, masked to the window of each query
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from swarden.engine_under_test.model.attention import Scoring, attention, visible
from swarden.engine_under_test.model.recurrent import Recurrence
from swarden.engine_under_test.model.spec import LayerKind, ModelSpec
from swarden.engine_under_test.model.states import state_pass
from swarden.engine_under_test.ports import ForwardBatch, PageSpan, PoolPages
from swarden.engine_under_test.units import num_pages

PADDING_PAGE = 0
MAX_PAGES_RATIO = 4  # of two entries in a call; above it another call per layer costs less than reading padding


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Entries with the same number of queries, for one call of attention."""

    rows: slice | torch.Tensor  # their tokens in the pass
    batch: int
    pages: torch.Tensor  # (batch * pages) int64
    mask: torch.Tensor  # (batch, 1, queries, keys): True where a query sees a key
    unseen: torch.Tensor  # (1, batch, keys, 1, 1): True where no query sees it


@dataclass(frozen=True, slots=True)
class PoolPass:
    """One pool in one pass: its storage, and the slots to write."""

    kv: torch.Tensor  # (layers, 2, pages + 1, page_size, kv_heads, head_dim)
    slots: torch.Tensor  # (tokens,) int64: of each token of the pass, in order
    groups: Sequence[QueryGroup]


class PagedCache:
    """The cache of one pass: each layer writes its keys and values to slots, then reads them through the pages.

    Slots that no query sees are read as zeros: they may have any content, and a mask does not stop NaN.
    """

    def __init__(self, spec: ModelSpec, batch: ForwardBatch) -> None:
        pools = {kind_of(pool.window, num_slots=pool.num_slots): pool for pool in batch.pools}
        kinds = {layer.kind for layer in spec.layers}
        self._kv = {kind: _pool_pass(batch, pools[kind]) for kind in kinds - {LayerKind.RECURRENT}}
        self._states = {kind: state_pass(batch, pools[kind]) for kind in kinds & {LayerKind.RECURRENT}}
        counts = dict.fromkeys(LayerKind, 0)
        self._layers: list[tuple[LayerKind, int]] = []  # the kind of each layer, and its place in the pool
        for layer in spec.layers:
            self._layers.append((layer.kind, counts[layer.kind]))
            counts[layer.kind] += 1

    def recur(self, layer: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        """The output of a recurrence, (tokens, width); x is (tokens, inputs)."""
        kind, index = self._layers[layer]
        return self._states[kind].recur(index, x, recurrence)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        """The attention output, in q's shape, (tokens, heads, head_dim); k and v are (tokens, kv_heads, head_dim)."""
        kind, index = self._layers[layer]
        pool = self._kv[kind]
        kv = pool.kv[index]
        by_slot = kv.view(2, -1, *k.shape[1:])
        by_slot[0].index_copy_(0, pool.slots, k)
        by_slot[1].index_copy_(0, pool.slots, v)
        if len(pool.groups) == 1:
            return self._attend(q, kv, pool.groups[0], scoring)
        attended = torch.empty_like(q)
        for group in pool.groups:
            attended[group.rows] = self._attend(q[group.rows], kv, group, scoring)
        return attended

    def _attend(self, q: torch.Tensor, kv: torch.Tensor, group: QueryGroup, scoring: Scoring) -> torch.Tensor:
        """The attention output of one group, (batch * queries, heads, head_dim)."""
        heads, head_dim = q.shape[1:]
        gathered = kv.index_select(1, group.pages).view(2, group.batch, -1, *kv.shape[3:])
        keys, values = gathered.masked_fill_(group.unseen, 0.0).transpose(2, 3).unbind()
        queries = q.reshape(group.batch, -1, heads, head_dim).transpose(1, 2)
        attended = attention(queries, keys, values, mask=group.mask, scoring=scoring)
        return attended.transpose(1, 2).reshape(-1, heads, head_dim)


def kind_of(window: int | None, *, num_slots: int) -> LayerKind:
    """The kind of the layers of a pool with this window, and with `num_slots` states a page."""
    if num_slots:
        return LayerKind.RECURRENT
    return LayerKind.FULL if window is None else LayerKind.SLIDING


def _pool_pass(batch: ForwardBatch, pool: PoolPages) -> PoolPass:
    """The slots and the groups of one pool in a pass.

    Decodes with the same number of queries and about as many pages are one group; any other entry is a group of its
    own.
    """
    page_size, device = batch.page_size, pool.kv.device
    pages = pool.pages.tolist()
    slots, rows = array("q"), 0
    decodes: dict[int, list[int]] = {}  # by the number of queries
    members: list[tuple[list[int], slice | list[int]]] = []
    first_rows = []
    for index, (entry, span) in enumerate(zip(batch.entries, pool.spans, strict=True)):
        slots.extend(_slots(pages, span, entry.start, entry.end, page_size))
        first_rows.append(rows)
        num_queries = entry.end - entry.start
        if num_queries == max(1, entry.num_samples):
            decodes.setdefault(num_queries, []).append(index)
        else:
            members.append(([index], slice(rows, rows + num_queries)))
        rows += num_queries
    for num_queries, indices in decodes.items():
        for similar in _by_num_pages(indices, pool.spans):
            similar_rows = [first_rows[index] + place for index in similar for place in range(num_queries)]
            members.append((similar, similar_rows))
    groups = [_group(batch, pool, pages, indices, rows_of) for indices, rows_of in members]
    return PoolPass(pool.kv, torch.frombuffer(slots, dtype=torch.int64).to(device), groups)


def _by_num_pages(indices: Sequence[int], spans: Sequence[PageSpan]) -> list[list[int]]:
    """Groups in which no entry has more than `MAX_PAGES_RATIO` times the pages of another; entries in order."""
    groups: list[list[int]] = []
    for index in sorted(indices, key=lambda index: spans[index].num_pages):
        if not groups or spans[index].num_pages > MAX_PAGES_RATIO * spans[groups[-1][0]].num_pages:
            groups.append([])
        groups[-1].append(index)
    return [sorted(group) for group in groups]


def _group(
    batch: ForwardBatch, pool: PoolPages, pages: Sequence[int], indices: Sequence[int], rows_of: slice | list[int]
) -> QueryGroup:
    """One group of entries; the shorter ones are filled up with the padding page, which no query sees."""
    device, page_size = pool.kv.device, batch.page_size
    entries, spans = [batch.entries[index] for index in indices], [pool.spans[index] for index in indices]
    most = max(span.num_pages for span in spans)
    padded = array("q")
    for span in spans:
        padded.extend(pages[span.begin : span.begin + span.num_pages])
        padded.extend([PADDING_PAGE] * (most - span.num_pages))
    num_queries = entries[0].end - entries[0].start
    first = torch.tensor([span.first_position for span in spans], device=device)
    starts = torch.tensor([entry.start for entry in entries], device=device)
    keys = first[:, None] + torch.arange(most * page_size, device=device)
    queries = starts[:, None] + torch.arange(num_queries, device=device)
    mask = visible(queries, keys, pool.window)
    rows = torch.tensor(rows_of, device=device) if isinstance(rows_of, list) else rows_of
    unseen = ~mask.any(1)[None, :, :, None, None]
    return QueryGroup(rows, len(indices), torch.frombuffer(padded, dtype=torch.int64).to(device), mask[:, None], unseen)


def _slots(pages: Sequence[int], span: PageSpan, start: int, end: int, page_size: int) -> Sequence[int]:
    """The slots of a request's positions [start, end)."""
    slots: list[int] = []
    for page in range((start - span.first_position) // page_size, num_pages(end - span.first_position, page_size)):
        begin = span.first_position + page * page_size
        slot = pages[span.begin + page] * page_size - begin
        slots.extend(range(slot + max(start, begin), slot + min(end, begin + page_size)))
    return slots
