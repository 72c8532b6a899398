"""The engine of the demo: paged, without a prefix cache; requests run in arrival order, one token a request and step.

It has a planted bug: an aborted request leaks its last block.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Request:
    id: int
    prompt: list[int]
    max_new_tokens: int
    stop: Collection[int] = ()
    computed_len: int = 0
    blocks: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


class Output(NamedTuple):
    """A new token of a request, or None; and the finish reason of the request, or None while it runs."""

    request: Request
    token: int | None
    finish_reason: str | None


class BlockPool:
    """The blocks 1 to `num_blocks`; a subclass may log which request takes and frees them."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free_blocks = list(range(1, num_blocks + 1))

    def take(self, count: int, request_id: int) -> list[int]:
        return [self.free_blocks.pop() for _ in range(count)]

    def free(self, blocks: list[int], request_id: int) -> None:
        self.free_blocks += blocks


class Engine:
    """Blocks of `block_size` tokens; prompts are computed in chunks of `chunk_len` tokens."""

    def __init__(self, pool: BlockPool, block_size: int, max_running: int, chunk_len: int) -> None:
        self.pool = pool
        self.block_size = block_size
        self.max_running = max_running
        self.chunk_len = chunk_len
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.outputs: list[Output] = []  # since the last step
        self.num_requests = 0

    def add(self, prompt: list[int], max_new_tokens: int, stop: Collection[int] = ()) -> int:
        self.num_requests += 1
        request = Request(self.num_requests, prompt, max_new_tokens, stop)
        if self._num_blocks_of(request) > self.pool.num_blocks:
            self.outputs.append(Output(request, None, "rejected"))
        else:
            self.waiting.append(request)
        return request.id

    def abort(self, request_id: int) -> None:
        for request in [other for other in self.waiting + self.running if other.id == request_id]:
            self.waiting = [other for other in self.waiting if other is not request]
            self.running = [other for other in self.running if other is not request]
            num_full = request.computed_len // self.block_size
            self.pool.free(request.blocks[:num_full], request.id)  # the bug: a block that is not full leaks
            self.outputs.append(Output(request, None, "abort"))

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.outputs)

    def step(self) -> list[Output]:
        """Admit requests; then compute a chunk or a token of each running request."""
        self._admit()
        for request in list(self.running):
            length = len(request.prompt) + len(request.outputs)
            request.computed_len = min(length, request.computed_len + self.chunk_len)
            if request.computed_len == length:
                request.outputs.append(length)
                reason = "stop" if length in request.stop else None
                if reason is None and len(request.outputs) >= request.max_new_tokens:
                    reason = "length"
                if reason is not None:
                    self.running.remove(request)
                    self.pool.free(request.blocks, request.id)
                self.outputs.append(Output(request, length, reason))
        outputs, self.outputs = self.outputs, []
        return outputs

    def _admit(self) -> None:
        """Admit in arrival order, each request with all the blocks that it can need."""
        while self.waiting and len(self.running) < self.max_running:
            need = self._num_blocks_of(self.waiting[0])
            if need > len(self.pool.free_blocks):
                return
            request = self.waiting.pop(0)
            request.blocks = self.pool.take(need, request.id)
            self.running.append(request)

    def _num_blocks_of(self, request: Request) -> int:
        return -(-(len(request.prompt) + request.max_new_tokens) // self.block_size)
