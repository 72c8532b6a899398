"""The correct content of every slot and every output, from the token ids alone: no cache, no pages.

The tag of a slot is a hash of the token prefix up to its token, and of the namespace.  The next token
is a function of all tags that a full layer reads, and of those that a windowed layer reads.  The fake
forward computes it from the tags that it reads, so a wrong page changes the output.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swarden.invariants.grammar import allowed_tokens

TAG_BITS = 63
TAG_MASK = (1 << TAG_BITS) - 1
WORD_MASK = (1 << 64) - 1


def namespace_tag(namespace: int) -> int:
    """The tag before position 0."""
    return next_tag(0x5EED, namespace)


def next_tag(previous: int, token: int) -> int:
    """The tag of a prefix with one more token; never 0, the tag of an unwritten slot."""
    mixed = ((previous ^ (token + 1)) * 0x9E3779B97F4A7C15) & WORD_MASK
    mixed ^= mixed >> 29
    return (mixed * 0xBF58476D1CE4E5B9 & TAG_MASK) | 1


def sampled_token(sums: Sequence[int], vocabulary: int) -> int:
    """The next token from the sums of the tags read, one per pool in order; sums wrap at 64 bits."""
    previous = 0
    for total in sums:  # next_tag(previous, total), inlined
        mixed = (previous ^ ((total & WORD_MASK) + 1)) * 0x9E3779B97F4A7C15 & WORD_MASK
        previous = ((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & TAG_MASK) | 1
    return (previous >> 8) % vocabulary


@dataclass
class Expectation:
    """The tokens of a request with the tag of each."""

    namespace: int
    prompt_len: int
    tokens: list[int]
    stop: frozenset[int] = frozenset()  # its stop tokens
    len_at_abort: int | None = None  # the number of tokens when the client aborted it
    reason: str | None = None  # the finish reason that the client got; None until then
    is_uncached: bool = False  # an engine need not keep its KV
    client: int = 0  # the first of the requests that are answers for one client; 0: not known
    grammar: int = 0  # the tokens of its output that a grammar gives; 0: none
    tags: "array[int]" = field(default_factory=lambda: array("q"))
    sums: list[int] = field(default_factory=lambda: [0])  # sums[n] is the sum of the first n tags

    @property
    def is_aborted(self) -> bool:
        """Has the client aborted the request?"""
        return self.len_at_abort is not None

    def extend(self, tokens: Sequence[int]) -> None:
        """Append output tokens; costs O(len(tokens))."""
        self.tokens += tokens
        self._catch_up()

    def __post_init__(self) -> None:
        self._catch_up()

    def _catch_up(self) -> None:
        tag = self.tags[-1] if self.tags else namespace_tag(self.namespace)
        total = self.sums[-1]
        for token in self.tokens[len(self.tags) :]:
            tag = next_tag(tag, token)
            total += tag
            self.tags.append(tag)
            self.sums.append(total)

    def tags_of(self, start: int, end: int, drafts: Sequence[int] = ()) -> "array[int]":
        """The tags of [start, end), with `drafts` in place of the last output tokens, as far as tokens are known."""
        border = max(0, end - len(drafts))
        if not drafts or border > len(self.tags):
            return self.tags[start:end]
        tags = self.tags[start:border]
        tag = self.tags[border - 1] if border else namespace_tag(self.namespace)
        for position, token in enumerate(drafts, start=border):
            tag = next_tag(tag, token)
            if start <= position < end:
                tags.append(tag)
        return tags

    def next_token(self, position: int, *, windows: Sequence[int | None], vocabulary: int) -> int:
        """The token that must be sampled for `position`, from the tags that are visible in the window of each pool."""
        sums, total = self.sums, self.sums[position]
        seen = [
            total - sums[position - window] if window is not None and window < position else total for window in windows
        ]
        if not self.grammar:
            return sampled_token(seen, vocabulary)
        allowed = allowed_tokens(self.grammar, self.tokens[self.prompt_len : position], vocabulary)
        return allowed[sampled_token(seen, len(allowed))]


@dataclass
class Computed:
    """The blocks that a request has had since its first pass began at `start`: by component and index its unit.

    The unit is 0 if the cache has lost the block since.  `places` has, by pool and unit, where the unit may be, of all
    requests.  `seen` are the units of its record that are in `blocks`; () if an event has changed a block since.
    """

    start: int
    blocks: dict[tuple[int, int], int] = field(default_factory=dict)
    places: "dict[tuple[str, int], list[tuple[Computed, tuple[int, int]]]]" = field(default_factory=dict, compare=False)
    seen: Sequence[list[int]] = field(default=(), compare=False)

    def put(self, pool: str, at: tuple[int, int], unit: int) -> None:
        if self.seen and self.seen[at[0]][at[1] : at[1] + 1] not in ([], [unit]):
            self.seen = ()
        self.blocks[at] = unit
        self.places.setdefault((pool, unit), []).append((self, at))


class SessionUse(NamedTuple):
    """The last turn of a session (0: none yet), and when it began and ended; before it, when the session was opened."""

    turn: int
    began_ms: int
    ended_ms: int


@dataclass
class Past:
    """What the events of earlier transitions have shown (`past.py`); no part of it is read from the engine's state.

    `served` are, by request, the lengths of its prefixes behind which a request can start, in ascending order: they
    were computed, and not evicted since.  `used` and `asked` are of an engine with a prefix tree: until the transition
    in which the engine last had a request, the request may have used each node that it matches.
    """

    served: dict[int, list[int]] = field(default_factory=dict)
    computed: dict[int, Computed] = field(default_factory=dict)  # by request, its blocks, if hashes find them
    places: dict[tuple[str, int], list[tuple[Computed, tuple[int, int]]]] = field(default_factory=dict, compare=False)
    sessions: dict[int, SessionUse] = field(default_factory=dict)
    steps_ms: int = 0  # what the clock of the engine advanced by in steps
    waiting: dict[int, int] = field(default_factory=dict)  # in queue order: the passes that passed over each request
    idle: dict[tuple[str, int], int] = field(default_factory=dict)  # the transition since which a unit has no reader
    used: dict[tuple[str, int], int] = field(default_factory=dict)  # when a request last inserted or began with a unit
    asked: dict[int, int] = field(default_factory=dict)  # the last transition in which the engine had a request
    moment: int = 0  # the number of the last transition


@dataclass
class Reference:
    """The client's view of the requests: prompts, and the output tokens that the client got.

    The harness fills it from its own submissions and the streamed tokens, never from the engine's state.
    """

    vocabulary: int = 0  # 0: outputs cannot be predicted
    windows: tuple[int | None, ...] = ()
    now_ms: int = 0  # by which the harness has advanced the engine's clock
    expectations: dict[int, Expectation] = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    def submitted(self, request_id: int, *, namespace: int, prompt: Sequence[int], stop: Sequence[int] = ()) -> None:
        self.expectations[request_id] = Expectation(namespace, len(prompt), list(prompt), frozenset(stop))

    def aborted(self, request_id: int) -> None:
        expected = self.expectations[request_id]
        expected.len_at_abort = len(expected.tokens)

    def streamed(self, request_id: int, tokens: Sequence[int], reason: str | None = None) -> None:
        self.expectations[request_id].extend(tokens)
        self.expectations[request_id].reason = reason

    def has_left(self, request_id: int) -> bool:
        """Has the client of a request aborted it, or another of its sequences?"""
        expected = self.expectations[request_id]
        others = self.expectations.values() if expected.client else ()
        return expected.is_aborted or any(other.is_aborted for other in others if other.client == expected.client)

    def tokens_of(self, request_id: int) -> Sequence[int]:
        """A request's prompt and output so far; empty if the request is unknown or was forgotten."""
        return self.expectations[request_id].tokens if request_id in self.expectations else ()

    def forget(self, request_ids: Sequence[int]) -> None:
        """Drop ended requests, which no law needs."""
        for request_id in request_ids:
            del self.expectations[request_id]
