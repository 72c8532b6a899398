"""Tags in place of KV: the model that computes them and generates from them, and the memory that has them.

The tag of a position is a hash of the namespace and of all tokens up to this position (`invariants/reference.py`), and
the next token is a function of the tags that are read.  So a wrong slot shows as a wrong tag, and in the output.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swarden.invariants.reference import TAG_MASK, namespace_tag, next_tag, sampled_token

VOCABULARY = 64  # token ids that the model generates
ALL_TOKENS = range(VOCABULARY)
# Layers of another component compute another KV from the same tokens: the tags of component n are salted n times.
SALT = 0x3D4D51CB1F2A6B77 & TAG_MASK


class TagModel:
    """The functions of the model, as the laws expect them; a test can use others."""

    def namespace_tag(self, namespace: int) -> int:
        """The tag before position 0."""
        return namespace_tag(namespace)

    def next_tag(self, previous: int, token: int) -> int:
        """The tag of a prefix with one more token; never 0, the tag of an unwritten slot."""
        return next_tag(previous, token)

    def sampled_token(self, sums: Sequence[int]) -> int:
        """The next token, from the sum of the tags that were read in each component."""
        return sampled_token(sums, VOCABULARY)


def chain(tag: int, tokens: Iterable[int]) -> "array[int]":
    """The tag after each of the tokens, which follow a prefix with this tag."""
    tags = array("q")
    for token in tokens:
        tag = next_tag(tag, token)
        tags.append(tag)
    return tags


TOKEN_SPAN = 1 << 20  # of an engine without a cache salt: the first token of a prompt has its namespace above
MOST_NAMESPACES = 1 << 11  # token ids have 31 bits


def with_namespace(tokens: Sequence[int], namespace: int) -> list[int] | None:
    """A prompt for an engine without a cache salt; None for one with too large numbers, or without tokens."""
    if not tokens or namespace >= MOST_NAMESPACES or max(tokens) >= TOKEN_SPAN:
        return None
    return [tokens[0] + TOKEN_SPAN * namespace, *tokens[1:]]


def chain_of_prompt(tag: int, tokens: Sequence[int], start: int) -> "array[int]":
    """As `chain`, for tokens from `start` on of a prompt with a namespace."""
    if start or not tokens:
        return chain(tag, tokens)
    return chain(namespace_tag(tokens[0] // TOKEN_SPAN), [tokens[0] % TOKEN_SPAN, *tokens[1:]])


class ReadTags(NamedTuple):
    """The tags from position `first` on that the layers of a component with this window (None: without one) read."""

    window: int | None
    first: int
    tags: "array[int]"

    @classmethod
    def first_of(cls, window: int | None, start: int) -> int:
        """The first position that is read if the positions from `start` on are computed."""
        return 0 if window is None else max(0, start + 1 - window)

    def sum_at(self, end: int) -> int:
        """The sum of the tags that the position before `end` sees."""
        begin = 0 if self.window is None else max(0, end - self.window)
        return sum(self.tags[max(0, begin - self.first) : end - self.first])


def token_after(reads: Iterable[ReadTags], end: int, allowed: Sequence[int] = ALL_TOKENS) -> int:
    """The token of those `allowed` that is sampled for position `end`, from the tags that each component has read."""
    return allowed[sampled_token([read.sum_at(end) for read in reads], len(allowed))]


def slots_of(table: Sequence[int], start: int, end: int, *, page_size: int, unit_size: int) -> list[int]:
    """The slots of positions [start, end) by a table of units, each with `page_size` tokens in `unit_size` slots.

    A position outside of the table has slot 0.
    """
    first, units = start // page_size * page_size, table[start // page_size : -(-end // page_size)]
    slots = [unit * unit_size + offset for unit in units for offset in range(page_size)] if unit_size > 1 else units
    slots = slots[start - first : end - first]
    return [*slots, *[0] * (end - start - len(slots))]


class TagMemory:
    """The memory of one pool: a tag per slot, 0 for an unwritten one; slot = unit * unit_size + offset.

    Unit 0 is padding: what is written there is lost.  Several components can share the pool: a slot with KV of one
    component has another tag when it is read as KV of another component.
    """

    def __init__(self, num_units: int, unit_size: int = 1) -> None:
        self.unit_size = unit_size
        self._tags = [0] * ((num_units + 1) * unit_size)

    def read(self, slots: Iterable[int], component: int = 0) -> "array[int]":
        salt, tags = SALT * component & TAG_MASK, self._tags
        if not salt:
            return array("q", [tags[slot] for slot in slots])
        return array("q", [tags[slot] and tags[slot] ^ salt for slot in slots])

    def write(self, slots: Iterable[int], tags: Iterable[int], component: int = 0) -> None:
        """Write a tag to each slot; raises ValueError if there are more of one than of the other."""
        salt, stored, padding = SALT * component & TAG_MASK, self._tags, self.unit_size
        for slot, tag in zip(slots, tags, strict=True):
            if slot >= padding:
                stored[slot] = tag and tag ^ salt

    def unit(self, unit: int) -> Sequence[int]:
        """The content of a unit, to be copied."""
        return self._tags[unit * self.unit_size : (unit + 1) * self.unit_size]

    def put_unit(self, unit: int, content: Sequence[int]) -> None:
        """Overwrite a unit with the content of another one; () stands for one that was never written."""
        assert len(content) in (0, self.unit_size), f"{len(content)} tags for a unit of {self.unit_size} slots"
        if unit:
            self._tags[unit * self.unit_size : (unit + 1) * self.unit_size] = content or [0] * self.unit_size

    def copy_units(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Copy units at once: each source is read before any target is written."""
        contents = [list(self.unit(source)) for source in sources]
        for target, content in zip(targets, contents, strict=True):
            self.put_unit(target, content)

    def fill(self, unit: int, tag: int, component: int = 0) -> None:
        """Write one tag to all slots of a unit: the tag of a recurrent state, or 0."""
        self.put_unit(unit, [tag and tag ^ (SALT * component & TAG_MASK)] * self.unit_size)

    def clear(self) -> None:
        """Remove all KV."""
        self._tags = [0] * len(self._tags)
