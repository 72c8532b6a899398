"""A stand-in for the device: its memory has one tag per slot, and its model computes passes from these tags."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import takewhile

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.parts.states import VllmStates
from swarden.harness.engines.vllm.passes import UNKNOWN, VllmEntry, VllmPass
from swarden.harness.engines.vllm.transfers import BlockLoad, BlockSave
from swarden.harness.kit.drafts import DraftScript, drafts_of
from swarden.harness.kit.tags import ALL_TOKENS, ReadTags, chain, slots_of, token_after
from swarden.invariants.reference import Expectation, namespace_tag


class Device:
    """The memory of the device, and the model that computes passes in it.

    `namespaces` are those of the requests.  `grammars` have the lengths of the grammar of an answer (0: none) and
    of its prompt.  `allowed` has, by request, the tokens that a bitmask allows in the next pass at each of its last
    positions; drafts behind these are refused.
    """

    def __init__(self, config: VllmConfig) -> None:
        self._num_drafts = config.drafts.count
        self.groups = config.groups
        self.windows = tuple([group.window for group in self.groups])  # None for full attention
        self.namespaces: dict[int, int] = {}
        self.grammars: dict[int, tuple[int, int]] = {}
        self.allowed: Mapping[int, Sequence[Sequence[int]]] = {}
        self._tokens: dict[int, list[int]] = {}
        self._drafts: dict[int, Sequence[int]] = {}
        self._saved: dict[tuple[int, int], int] = {}
        self.memory = config.tag_memory()
        self.states = VllmStates(config.state_mode, self.groups, self.memory)
        self.script = DraftScript((self._num_drafts, 0, 1))

    def repeated_len(self, flight: VllmPass, entry: VllmEntry) -> int:
        """The number of first tokens of an entry whose slots already hold what the entry writes.

        A prompt that was loaded whole has such a token: its last one is computed again, perhaps with drafts behind it.
        """
        tokens = flight.known.get(entry.request) or self._tokens.get(entry.request) or ()
        tags = chain(self._tag_before(entry), _tokens_of(entry, tokens))
        stored = [
            self._stored(group, table, entry.start, entry.end)
            for group, table in enumerate(entry.tables)
            if group not in self.states.groups
        ]
        is_written = (len(set(of_position)) == 1 for of_position in zip(tags, *stored, strict=True))
        return sum(takewhile(bool, is_written))

    def compute(self, flight: VllmPass) -> list[list[int]]:
        """Write and read what a pass computes. Returns the sampled tokens of each entry."""
        self._tokens.update({request: list(tokens) for request, tokens in flight.known.items()})
        for request, count in flight.lens.items():
            del self._tokens[request][count:]
        for source, target in flight.copies:
            if source:
                self.memory.put_unit(target, self.memory.unit(source))
            else:
                self.memory.fill(target, 0)
        self.states.begin(flight.admitted)
        self.states.move(flight.entries, flight.loaded)
        for load in flight.loads:
            self.load(load)
        for entry in flight.entries:
            self._write(entry)
        before = self.states.read(flight.entries)
        states = [
            {
                group: self._write_states(entry, group, before.get((entry.request, group)))
                for group in self.states.groups
            }
            for entry in flight.entries
        ]
        sampled = [self._read(flight, entry, tags) for entry, tags in zip(flight.entries, states, strict=True)]
        self.states.accept(flight.entries, [max(0, len(tokens) - 1) for tokens in sampled])
        for entry, tokens in zip(flight.entries, sampled, strict=True):
            if tokens:
                self._drafts[entry.request] = self._drafts_after(entry.request)
        return sampled

    def drafts(self, request: int) -> Sequence[int]:
        """The drafts that were proposed last for a request."""
        return self._drafts.get(request, ())

    def lose_kv(self) -> None:
        """All KV is discarded, as by a sleep at level 1."""
        self.memory.clear()

    def load(self, load: BlockLoad) -> None:
        """Write KV that comes from outside: that which was saved, or else the right one."""
        tags = chain(namespace_tag(self.namespaces[number_of(load.rid)]), load.tokens)
        for group, table in enumerate(load.tables):
            stored = [self._saved.get((group, tag), tag) for tag in tags[load.start :]]
            if group in self.states.groups:
                self.memory.fill(table[(load.end - 1) // self.groups[group].block_len], stored[-1], group)
            else:
                self.memory.write(self._slots(group, table, load.start, len(tags)), stored, group)

    def save(self, save: BlockSave) -> list[seen.WrongSlot]:
        """Read KV for the store, which finds it by the group and the right tag; blocks of states are left out.

        Returns the first slot with other KV than that of its position, if there is one.
        """
        wrong = list[seen.WrongSlot]()
        request = number_of(save.rid)
        tags = chain(namespace_tag(self.namespaces[request]), save.tokens)
        for group, table in enumerate(save.tables):
            if group not in self.states.groups:
                slots = self._slots(group, table, 0, len(tags))
                stored = enumerate(zip(slots, tags, self.memory.read(slots, group), strict=True))
                null = self.memory.unit_size  # slots of the null block are those of tokens before a window
                for position, (slot, tag, content) in stored:
                    if slot >= null:
                        self._saved[group, tag] = content
                        if content != tag:
                            wrong.append(seen.WrongSlot(request, position, slot // null, bool(content)))
        return wrong[:1]

    def _drafts_after(self, request: int) -> Sequence[int]:
        """The drafts after the tokens of a request so far; none if drafts are disabled."""
        right = self.script.next()
        if right is None or not self._num_drafts:
            return []
        length, prompt_len = self.grammars.get(request, (0, 0))
        expected = Expectation(self.namespaces[request], prompt_len, list(self._tokens[request]), grammar=length)
        return drafts_of(expected, count=self._num_drafts, right=right, windows=self.windows)

    def _slots(self, group: int, table: Sequence[int], start: int, end: int) -> list[int]:
        return slots_of(table, start, end, page_size=self.groups[group].block_len, unit_size=self.memory.unit_size)

    def _stored(self, group: int, table: Sequence[int], start: int, end: int) -> "array[int]":
        return self.memory.read(self._slots(group, table, start, end), group)

    def _write(self, entry: VllmEntry) -> None:
        """Write the KV of an entry in each group, computed from that of its prefix in the first one."""
        tags = chain(self._tag_before(entry), _tokens_of(entry, self._tokens[entry.request]))
        for group, table in enumerate(entry.tables):
            if group not in self.states.groups:
                self.memory.write(self._slots(group, table, entry.start, entry.end), tags, group)

    def _tag_before(self, entry: VllmEntry) -> int:
        """The tag of the prefix before an entry, as the first group has it."""
        if not entry.start:
            return namespace_tag(self.namespaces[entry.request])
        return self._stored(0, entry.tables[0], entry.start - 1, entry.start)[0]

    def _write_states(self, entry: VllmEntry, group: int, before: int | None) -> "array[int]":
        """Write the states of an entry, computed from the one before it.  Returns the tags of all, with that one."""
        read = [] if before is None else [before]
        [before] = read or [namespace_tag(self.namespaces[entry.request])]
        tags = chain(before, _tokens_of(entry, self._tokens[entry.request]))
        self.states.write(entry, group, tags)
        return array("q", [*read, *tags])

    def _read(self, flight: VllmPass, entry: VllmEntry, states: Mapping[int, "array[int]"]) -> list[int]:
        """Read what an entry sees in each group; `states` are the tags of the groups with states.

        Returns the sampled tokens, or none after a part of the tokens.
        """
        request, start, end, tables, drafts, *_ = entry
        reads = []
        for group, window in enumerate(self.windows):
            first = ReadTags.first_of(window, start)
            tags = states[group] if group in states else self._stored(group, tables[group], first, end)
            before = tags[: start - first] if group in states else tags  # states are read before the first token only
            flight.reports.append(seen.Read(flight.launch, request, POOL, first, before, group))
            reads.append(ReadTags(window, first, tags))
        tokens = self._tokens[request]
        if end < len(tokens):
            return []
        sampled = self._sampled(entry, reads)
        most = min(len(drafts), len(self.allowed.get(request, sampled)) - 1)
        accepted = next((index for index, draft in enumerate(drafts[:most]) if draft != sampled[index]), most)
        if drafts:
            flight.reports.append(seen.Verified(flight.launch, request, accepted, tuple(sampled)))
        tokens += sampled[: accepted + 1]
        return sampled[: accepted + 1]

    def _sampled(self, entry: VllmEntry, reads: Sequence[ReadTags]) -> list[int]:
        """The tokens after an entry and each of its drafts, from the tags that each group has read."""
        ends = range(entry.end - len(entry.drafts), entry.end + 1)
        allowed = [*self.allowed.get(entry.request, ()), *[ALL_TOKENS] * len(ends)]
        return [token_after(reads, end, of_end) for end, of_end in zip(ends, allowed, strict=False)]


def _tokens_of(entry: VllmEntry, known: Sequence[int]) -> Sequence[int]:
    """The tokens at the positions of an entry, of which the last are drafts."""
    tokens = [*known, *entry.drafts][entry.start : entry.end]
    return [*tokens, *[UNKNOWN] * (entry.end - entry.start - len(tokens))]
