"""A paged engine with a prefix cache. It launches a pass before it has the results of the pass before."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Key = tuple[int, ...]  # the salt, and all tokens up to the end of a block


@dataclass(eq=False)
class Request:
    """`tokens` are the prompt and the outputs; those of positions [0, launched_len) are in launched passes."""

    id: int
    salt: int
    tokens: list[int]
    prompt_len: int
    max_new_tokens: int
    stop: Collection[int]
    blocks: list[int] = field(default_factory=list)
    cached_len: int = 0
    launched_len: int = 0
    computed_len: int = 0
    finish_reason: str | None = None

    @property
    def num_outputs(self) -> int:
        return len(self.tokens) - self.prompt_len


class Entry(NamedTuple):
    """Positions [start, end) of a request in a pass, and its blocks when the pass was launched."""

    request: Request
    start: int
    end: int
    blocks: Sequence[int]


class Output(NamedTuple):
    """New tokens of a request, and its finish reason, None while it runs."""

    request: Request
    tokens: Sequence[int]
    finish_reason: str | None


class Model(Protocol):
    """Computes passes in the order of their launches."""

    def launch(self, entries: Sequence[Entry]) -> None: ...

    def results(self) -> Sequence[int]:
        """Wait for the oldest pass; returns the token after each of its entries."""


class BlockPool:
    """The blocks 1 to `num_blocks`, each with the number of block tables that it is in, and with a key if it is cached.

    A block that is in no table is in the `queue`, the next one to be taken first; it may still be cached.
    """

    def __init__(self, num_blocks: int) -> None:
        self.counts = dict.fromkeys(range(1, num_blocks + 1), 0)
        self.queue = dict.fromkeys(self.counts)
        self.key_of: dict[int, Key] = {}
        self.block_of: dict[Key, int] = {}

    def find(self, keys: Sequence[Key]) -> list[int]:
        """The cached blocks of the longest prefix."""
        found: list[int] = []
        for key in keys:
            if key not in self.block_of:
                break
            found.append(self.block_of[key])
        return found

    def share(self, blocks: Sequence[int]) -> None:
        """Put cached blocks into one table more."""
        for block in blocks:
            self.queue.pop(block, None)
            self.counts[block] += 1

    def take(self, count: int, request_id: int) -> list[int]:
        """Take blocks for a request, and forget what they have cached."""
        blocks = list(self.queue)[:count]
        self.evict(blocks)
        self.share(blocks)
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Take blocks out of a table, so that the end of a prefix is evicted before its beginning."""
        for block in reversed(blocks):
            self.counts[block] -= 1
            if not self.counts[block]:
                self.queue[block] = None

    def keep(self, block: int, key: Key) -> None:
        """Cache a full block, unless another one has the same tokens."""
        if key not in self.block_of and block not in self.key_of:
            self.key_of[block], self.block_of[key] = key, block

    def evict(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if block in self.key_of:
                del self.block_of[self.key_of.pop(block)]


class Engine:
    """Blocks of `block_size` tokens; prompts are computed in chunks of `chunk_len` tokens."""

    def __init__(self, pool: BlockPool, model: Model, block_size: int, max_running: int, chunk_len: int) -> None:
        self.pool, self.model = pool, model
        self.block_size, self.max_running, self.chunk_len = block_size, max_running, chunk_len
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.in_flight: list[Sequence[Entry]] = []
        self.outputs: list[Output] = []  # since the last step
        self.num_requests = 0

    def add(self, prompt: Sequence[int], max_new_tokens: int, stop: Collection[int], salt: int) -> int:
        self.num_requests += 1
        request = Request(self.num_requests, salt, [*prompt], len(prompt), max_new_tokens, stop)
        self.waiting.append(request)
        if self._num_blocks_of(request) > len(self.pool.counts):
            self._finish(request, "rejected", ())
        return request.id

    def abort(self, request_id: int) -> None:
        for request in [one for one in self.waiting + self.running if one.id == request_id]:
            self._finish(request, "abort", ())

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.in_flight or self.outputs)

    def step(self) -> list[Output]:
        """Admit requests and launch a pass; then take the results of the pass before it."""
        self._admit()
        num_before = len(self.in_flight)
        if entries := [entry for request in self.running for entry in self._entries_of(request)]:
            self.in_flight.append(entries)
            self.model.launch(entries)
        if num_before:
            for entry, token in zip(self.in_flight.pop(0), self.model.results(), strict=True):
                self._commit(entry, token)
        outputs, self.outputs = self.outputs, []
        return outputs

    def keys(self, request: Request, end: int) -> list[Key]:
        """The keys of the full blocks of [0, end)."""
        ends = range(self.block_size, end + 1, self.block_size)
        return [(request.salt, *request.tokens[:block_end]) for block_end in ends]

    def _admit(self) -> None:
        """Admit in arrival order, each request with all the blocks that it can need; at least one token is computed."""
        while self.waiting and len(self.running) < self.max_running:
            request = self.waiting[0]
            cached = self.pool.find(self.keys(request, request.prompt_len - 1))
            self.pool.share(cached)
            need = self._num_blocks_of(request) - len(cached)
            if need > len(self.pool.queue):
                self.pool.release(cached)
                return
            request.blocks = cached + self.pool.take(need, request.id)
            request.cached_len = request.launched_len = request.computed_len = len(cached) * self.block_size
            self.running.append(self.waiting.pop(0))

    def _entries_of(self, request: Request) -> list[Entry]:
        """The next chunk of its prompt, or its last token, which can be an output of the pass in flight."""
        start = request.launched_len
        end = min(request.prompt_len, start + self.chunk_len) if start < request.prompt_len else start + 1
        if end >= request.prompt_len + request.max_new_tokens:
            return []
        request.launched_len = end
        return [Entry(request, start, end, tuple(request.blocks))]

    def _commit(self, entry: Entry, token: int) -> None:
        """Use the result of an entry, unless its request has ended since the launch."""
        request = entry.request
        is_output = entry.end == len(request.tokens)
        if is_output:
            request.tokens.append(token)
        if request.finish_reason is not None:
            return
        request.computed_len = entry.end
        for block, key in zip(request.blocks, self.keys(request, entry.end), strict=False):
            self.pool.keep(block, key)
        if is_output:
            is_last = request.num_outputs == request.max_new_tokens
            reason = "stop" if token in request.stop else "length" if is_last else None
            if reason is None:
                self.outputs.append(Output(request, (token,), None))
            else:
                self._finish(request, reason, (token,))

    def _finish(self, request: Request, reason: str, tokens: Sequence[int]) -> None:
        """End a request. A pass in flight still writes to its blocks, before any later pass does."""
        self.waiting, self.running = (
            [one for one in queue if one is not request] for queue in (self.waiting, self.running)
        )
        self.pool.release(request.blocks)
        request.finish_reason = reason
        self.outputs.append(Output(request, tokens, reason))

    def _num_blocks_of(self, request: Request) -> int:
        return -(-(request.prompt_len + request.max_new_tokens) // self.block_size)
