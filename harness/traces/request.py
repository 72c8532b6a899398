"""One request of a trace, independent of the trace format."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from swarden.harness.core.errors import UsageError

TOKEN_BITS = 60  # enough that two blocks never share a token, and so never a page


class TraceError(UsageError):
    """A trace that cannot be served; names the file, and the line if one is wrong."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The arrival, prompt and output length of a request. The prompt is generated at each access.

    `block_ids` name whole blocks of `block_len` tokens.  If `tail_len` is above 0, the last id names a block of which
    the prompt has the first `tail_len` tokens.  Equal ids stand for equal tokens.
    """

    arrival_ms: int
    block_ids: tuple[int, ...]
    block_len: int
    tail_len: int
    max_new_tokens: int

    @property
    def num_full_blocks(self) -> int:
        return len(self.block_ids) - (self.tail_len > 0)

    @property
    def prompt_len(self) -> int:
        return self.num_full_blocks * self.block_len + self.tail_len

    @property
    def most_len(self) -> int:
        """Tokens of the prompt and of the longest output."""
        return self.prompt_len + self.max_new_tokens

    def prompt_token_ids(self) -> tuple[int, ...]:
        return tuple(self._tokens())

    def _tokens(self) -> Iterator[int]:
        for index, block_id in enumerate(self.block_ids):
            yield from block_token_ids(block_id, self.block_len if index < self.num_full_blocks else self.tail_len)


def block_token_ids(block_id: int, length: int) -> list[int]:
    """The first `length` tokens of a block. A shorter result is a prefix of a longer one."""
    generator = Random(block_id)
    return [generator.getrandbits(TOKEN_BITS) for _ in range(length)]
