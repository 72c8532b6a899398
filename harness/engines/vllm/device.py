"""A stand-in for the device: its memory has one tag per slot, and its model computes passes from these tags."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.config import VOCABULARY, VllmConfig
from swarden.harness.engines.vllm.memory import VllmMemory
from swarden.harness.engines.vllm.passes import BlockLoad, VllmEntry, VllmPass
from swarden.harness.engines.vllm.states import VllmStates
from swarden.invariants.reference import Expectation, namespace_tag, next_tag, sampled_token

POOL = "blocks"
UNKNOWN = VOCABULARY  # stands for a token that the runner has not been told, or a draft that was not proposed


class VllmProposer:
    """A chain of `count` drafts after each output; the op-log says how many of the first are the model's own tokens."""

    def __init__(self, count: int, windows: Sequence[int | None]) -> None:
        self._count, self._windows = count, windows
        self._lengths: Sequence[int] = (count, 0, 1)
        self._turn = 0

    def accept(self, lengths: Sequence[int]) -> None:
        """As DraftPort."""
        self._lengths, self._turn = lengths, 0

    def drafts(self, namespace: int, tokens: Sequence[int]) -> list[int]:
        """The drafts after these tokens; none if drafts are disabled."""
        if not self._lengths:
            return []
        right = self._lengths[self._turn % len(self._lengths)]
        self._turn += 1
        expected = Expectation(namespace, 0, list(tokens))
        for index in range(self._count):
            token = expected.next_token(len(expected.tokens), windows=self._windows, vocabulary=VOCABULARY)
            expected.extend([token if index < right else (token + 1) % VOCABULARY])
        return expected.tokens[len(tokens) :]


class Device:
    """The memory of the device, and the model that computes passes in it; `namespaces` are those of the requests."""

    def __init__(self, config: VllmConfig, notice: Callable[[NamedTuple], None]) -> None:
        self._notice = notice
        self.windows = tuple([group.window for group in config.groups])  # None for full attention
        self.namespaces: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}
        self._drafts: dict[int, Sequence[int]] = {}
        self.memory = VllmMemory(config.num_blocks, config.groups)
        self.states = VllmStates(config, self.memory)
        self.proposer = VllmProposer(config.draft_len or 0, self.windows)

    def repeated_len(self, one: VllmPass, entry: VllmEntry) -> int:
        """The first tokens of an entry whose slots hold already what it writes.

        A prompt that was loaded whole is one: its last token is computed again, perhaps with drafts behind it.
        """
        if self.states.groups:
            return 0
        tokens = one.known.get(entry.request) or self._tokens.get(entry.request) or ()
        tags = _chain(entry, self._tag_before(entry), tokens)
        is_written = (
            all(self.memory.get(group, table, position) == tag for group, table in enumerate(entry.tables))
            for position, tag in enumerate(tags, entry.start)
        )
        return sum(takewhile(bool, is_written))

    def compute(self, one: VllmPass) -> list[list[int]]:
        """Write and read what a pass computes. Returns the sampled tokens of each entry."""
        self._tokens.update({request: list(tokens) for request, tokens in one.known.items()})
        for block in one.zeroed:
            self.memory.fill(block, 0)
        for load in one.loads:
            self.load(load)
        self.states.move(one.entries)
        for entry in one.entries:
            self._write(entry)
        before = self.states.read(one.entries)
        states = [
            {
                group: self._write_states(entry, group, before.get((entry.request, group)))
                for group in self.states.groups
            }
            for entry in one.entries
        ]
        sampled = [self._read(one.launch, entry, tags) for entry, tags in zip(one.entries, states, strict=True)]
        self.states.accept(one.entries, [max(0, len(tokens) - 1) for tokens in sampled])
        for entry, tokens in zip(one.entries, sampled, strict=True):
            if tokens:
                namespace = self.namespaces[entry.request]
                self._drafts[entry.request] = self.proposer.drafts(namespace, self._tokens[entry.request])
        return sampled

    def drafts(self, request: int) -> Sequence[int]:
        """The drafts that were proposed last for a request."""
        return self._drafts.get(request, ())

    def load(self, load: BlockLoad) -> None:
        """Write KV that comes from outside."""
        tag = namespace_tag(self.namespaces[load.request])
        for position, token in enumerate(load.tokens):
            tag = next_tag(tag, token)
            for group, table in enumerate(load.tables if position >= load.start else ()):
                self.memory.put(group, table, position, tag)

    def _write(self, entry: VllmEntry) -> None:
        """Write the KV of an entry in each group, computed from that of its prefix in the first one."""
        request, start, _, tables, *_ = entry
        for position, tag in enumerate(_chain(entry, self._tag_before(entry), self._tokens[request]), start):
            for group, table in enumerate(tables):
                if group not in self.states.groups:
                    self.memory.put(group, table, position, tag)

    def _tag_before(self, entry: VllmEntry) -> int:
        """The tag of the prefix before an entry, as the first group has it."""
        if not entry.start:
            return namespace_tag(self.namespaces[entry.request])
        return self.memory.get(0, entry.tables[0], entry.start - 1)

    def _write_states(self, entry: VllmEntry, group: int, before: int | None) -> "array[int]":
        """Write the states of an entry, computed from the one before it.  Returns the tags of all, with that one."""
        read = [] if before is None else [before]
        [before] = read or [namespace_tag(self.namespaces[entry.request])]
        tags = _chain(entry, before, self._tokens[entry.request])
        self.states.write(entry, group, tags)
        return array("q", [*read, *tags])

    def _read(self, launch: int, entry: VllmEntry, states: Mapping[int, "array[int]"]) -> list[int]:
        """Read what an entry sees in each group; `states` are the tags of the groups with states.

        Returns the sampled tokens, or none after a part of the tokens.
        """
        request, start, end, tables, drafts, _ = entry
        groups = []
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, start + 1 - window)
            if group in states:
                tags = states[group]
            else:
                tags = array("q", [self.memory.get(group, tables[group], position) for position in range(first, end)])
            before = tags[: start - first] if group in states else tags  # states are read before the first token only
            self._notice(seen.Read(launch, request, POOL, first, before, group))
            groups.append((window, first, tags))
        tokens = self._tokens[request]
        if end < len(tokens):
            return []
        sampled = []
        for last in range(end - len(drafts), end + 1):
            sums = [sum(tags[max(0, last - (window or last)) - first : last - first]) for window, first, tags in groups]
            sampled.append(sampled_token(sums, VOCABULARY))
        accepted = next((index for index, draft in enumerate(drafts) if draft != sampled[index]), len(drafts))
        if drafts:
            self._notice(seen.Verified(launch, request, accepted, tuple(sampled)))
        tokens += sampled[: accepted + 1]
        return sampled[: accepted + 1]


def _chain(entry: VllmEntry, tag: int, known: Sequence[int]) -> list[int]:
    """The tags of the positions of an entry after this tag; after an unwritten slot they are of no prefix."""
    tokens = [*known, *entry.drafts]
    tags = []
    for position in range(entry.start, entry.end):
        tag = next_tag(tag, tokens[position] if position < len(tokens) else UNKNOWN)
        tags.append(tag)
    return tags
