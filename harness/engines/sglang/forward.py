"""The stand-in for the model: one tag per slot of each pool, written and read through the release's own tables."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.target import Shape
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.engines.sglang.requests import SglangRequest
from swarden.harness.engines.sglang.states import STATE_POOL, STATE_WINDOW, SglangStates, states_of
from swarden.harness.kit.passes import Pass, Passes
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.harness.kit.tags import ALL_TOKENS, ReadTags, TagMemory, chain, token_after
from swarden.invariants.reference import namespace_tag
from swarden.invariants.view import ComponentView


class SglangEntry(NamedTuple):
    """Positions [start, end) of a request in a pass, and the slots of [0, end) in each pool of KV at its launch.

    With drafts, the slots are also those of the drafts.  `states` are the slots of states that the entry writes.
    """

    request: SglangRequest
    start: int
    end: int
    slots: Sequence[Sequence[int]]
    row: int
    drafts: Sequence[int] = ()
    states: Sequence[int] = ()

    def written(self, component: int) -> Sequence[int]:
        """The slots that the entry writes in a pool."""
        return self.slots[component][self.start :] if component < len(self.slots) else self.states

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request.id, self.start, self.end


SglangPass = Pass[SglangEntry]
Notice = Callable[[NamedTuple], None]
EntryReads = tuple[SglangEntry, Sequence[ReadTags]]


class TagForward:
    """Computes each pass at its launch: passes run in order on one stream, so no later call changes what they read."""

    def __init__(
        self, release: SglangRelease, shape: Shape, components: Sequence[ComponentView], notice: Notice
    ) -> None:
        self.release, self._notice = release, notice
        self._page_size, self._pools = shape.page_size, shape.pools
        self.tags = tuple([TagMemory(pool.units, shape.page_size) for pool in shape.pools])
        self.pool_names = [component.pool for component in components]
        self.passes = Passes[SglangEntry]()

    def launch(self, batch: Any, memory: SglangMemory) -> Any:
        """Launch and compute a batch of the scheduler; returns its result, for the scheduler to process later."""
        entries = entries_of(batch, memory)
        flight = self.passes.launch(entries)
        self._notice(flight.launched())
        states = states_of(memory.rows)
        if states is not None:
            states.prepare(batch)
        written = [self._write(flight.launch, entry, states) for entry in entries]
        if states is not None:
            of_batch = enumerate(zip(entries, written, strict=True))
            tracked = [states.track(batch, index, computed) for index, computed in of_batch]
            flight.entries = entries = [
                self._with_states(flight.launch, entry, states, of_state, slot)
                for entry, of_state, slot in zip(entries, written, tracked, strict=True)
            ]
        reads = [(entry, self._read(flight, entry, tags)) for entry, tags in zip(entries, written, strict=True)]
        result = Missing(
            can_run_cuda_graph=False,
            num_correct_drafts=0,
            num_accepted_tokens=0,
            logits_output=Missing(),
            get_num_generated_tokens=lambda count: count,
            copy_done=Silent(),
            swarden_pass=flight,
        )
        self.sample(batch, result, reads, [ALL_TOKENS] * len(reads))
        return result

    def sample(self, batch: Any, result: Any, reads: Sequence[EntryReads], allowed: Sequence[Sequence[int]]) -> None:
        """Sample a token for each entry from what it has read, of those `allowed`, and put it into the result."""
        sampled = [token_after(tags, entry.end, of_it) for (entry, tags), of_it in zip(reads, allowed, strict=True)]
        for (entry, _), token in zip(reads, sampled, strict=True):
            entry.request.next_tokens[entry.end] = token
        batch.output_ids = result.next_token_ids = self.release.torch.tensor(sampled, dtype=self.release.torch.int64)

    def allowed(self, batch: Any, drafts: Any) -> Sequence[Sequence[Sequence[int]]]:
        """The tokens that may come after each of these tokens (n, count), the last one and the drafts, by request."""
        return [[ALL_TOKENS] * len(of_request) for of_request in drafts]

    def _write(self, launch: int, entry: SglangEntry, states: SglangStates | None) -> "array[int] | None":
        """Write the tags of an entry; returns the tag of its state before the pass and those after each token."""
        request, start, end, slots, *_ = entry
        tag, of_state = self.before(entry, states)
        tags = chain(tag, request.tokens(start, end))
        for memory, of_pool in zip(self.tags, slots, strict=True):
            memory.write(of_pool[start:], tags)
        self.notice_written(launch, entry, end)
        if of_state is not None:
            of_state += tags
        return of_state

    def _with_states(
        self, launch: int, entry: SglangEntry, states: SglangStates, of_state: Any, tracked: int
    ) -> SglangEntry:
        """Write the state after an entry, and report it and the tracked one; `of_state` are the tags of its states."""
        own = states.slot(entry.row)
        states.write([own], of_state[-1:])
        slots = (own, tracked) if tracked else (own,)
        return self.notice_states(launch, entry, dict.fromkeys(slots, entry.end - entry.start))

    def notice_states(self, launch: int, entry: SglangEntry, counts: Mapping[int, int]) -> SglangEntry:
        """Report the states that an entry writes, by slot with how many of its tokens are in; returns it with them."""
        for slot, count in counts.items():
            start, where = entry.start, ((slot,), len(self._pools))
            self._notice(seen.Written(launch, entry.request.id, STATE_POOL, start, start + count, *where))
        return entry._replace(states=tuple(counts))

    def _read(self, flight: SglangPass, entry: SglangEntry, of_state: "array[int] | None") -> list[ReadTags]:
        reads = self.read(flight, entry, entry.end)
        if of_state is not None:
            reads.append(self.read_state(flight, entry, of_state))
        return reads

    def read_state(self, flight: SglangPass, entry: SglangEntry, of_state: "array[int]") -> ReadTags:
        """Report the states of an entry so far with the result of the pass; returns what its positions read."""
        request, first, index = entry.request.id, ReadTags.first_of(STATE_WINDOW, entry.start), len(self._pools)
        flight.reports.append(seen.Read(flight.launch, request, STATE_POOL, first, of_state[:], index))
        return ReadTags(STATE_WINDOW, first, of_state)

    def before(self, entry: SglangEntry, states: SglangStates | None) -> tuple[int, "array[int] | None"]:
        """The tag of the prefix before an entry, and its state as a list of at most one; None without states.

        With states a pass computes from the state; a cleared one is of no token.
        """
        start = entry.start
        if states is not None:
            before = states.read([states.slot(entry.row)])
            return before[0] or namespace_tag(entry.request.namespace), array("q", before if start else [])
        of_full = self.tags[0].read(entry.slots[0][start - 1 : start]) if start else ()
        return of_full[0] if of_full else namespace_tag(entry.request.namespace), None

    def tags_read(self, entry: SglangEntry, component: int, end: int) -> ReadTags:
        """What the positions of an entry before `end` see in a pool."""
        window = self._pools[component].window
        first = ReadTags.first_of(window, entry.start)
        return ReadTags(window, first, self.tags[component].read(entry.slots[component][first:end]))

    def read(self, flight: SglangPass, entry: SglangEntry, end: int) -> list[ReadTags]:
        """Read what an entry sees in each pool, up to position `end`; it is reported with the result of the pass."""
        reads = [self.tags_read(entry, component, end) for component in range(len(self._pools))]
        for component, (pool, (_, first, tags)) in enumerate(zip(self._pools, reads, strict=True)):
            flight.reports.append(seen.Read(flight.launch, entry.request.id, pool.name, first, tags, component))
        return reads

    def notice_written(self, launch: int, entry: SglangEntry, end: int) -> None:
        """Report that an entry writes its slots up to position `end`."""
        for component, (pool, slots) in enumerate(zip(self._pools, entry.slots, strict=True)):
            pages = tuple(dict.fromkeys([slot // self._page_size for slot in slots[entry.start :]]))
            self._notice(seen.Written(launch, entry.request.id, pool.name, entry.start, end, pages, component))

    def notice_copied(self, component: int, slots: Iterable[int], owner: seen.Owner) -> None:
        """Report that a copy writes slots of a pool."""
        page = self._page_size if component < len(self._pools) else 1
        units = tuple(dict.fromkeys(slot // page for slot in slots))
        self._notice(seen.CopiedIn(self.pool_names[component], units, owner))


def entries_of(batch: Any, memory: SglangMemory) -> list[SglangEntry]:
    """The requests of a batch that is about to be launched, with the slots that they read and write."""
    return [
        SglangEntry(req.swarden, start, end, slots_of(memory, row, end), row)
        for req, (start, end), row in zip(batch.reqs, _ranges(batch), batch.req_pool_indices.tolist(), strict=True)
    ]


def _ranges(batch: Any) -> list[tuple[int, int]]:
    """Per request of a batch, the positions that the pass computes."""
    if batch.forward_mode.is_extend():
        return [(start, start + count) for start, count in zip(batch.prefix_lens, batch.extend_lens, strict=True)]
    return [(end - 1, end) for end in batch.seq_lens.tolist()]


def slots_of(memory: SglangMemory, row: int, end: int) -> Sequence[Sequence[int]]:
    """The slots of positions [0, end) of a row, in each pool of KV."""
    slots, mapping = memory.rows.req_to_token[row, :end], memory.mapping
    if mapping is None:
        return (slots.tolist(),)
    return slots.tolist(), mapping[slots.long()].tolist()
