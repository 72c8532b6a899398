"""The rules for the messages of a peer: the valid values of each field, by the terms of its transfer.

Each function gives the reason why a message is against a rule, or None.
"""

from collections.abc import Mapping

from swarden.engine_under_test.disaggregation.payload import shape_of
from swarden.engine_under_test.messages import Invitation, PageAck, PageData, TransferEnd
from swarden.engine_under_test.pools.memory import KVMemory

MAX_NAME = 40  # characters of a peer's text in a reason


def why_pages_are_wrong(message: PageData | PageAck, due: Mapping[str, range]) -> str | None:
    """The pages must be some of those that are due in their pool for the whole prompt.

    Pages of a prefix are tolerated, and not written: the peer may answer an engine that this one has replaced.
    """
    if message.pool not in due:
        return f"pool {message.pool[:MAX_NAME]!r}; want one of {', '.join(due)}"
    pages, start, stop = due[message.pool], message.first, message.first + message.num_pages
    if not pages.start <= start < stop <= pages.stop:
        return f"{message.pool} pages [{start}, {stop}); want some of [{pages.start}, {pages.stop})"
    return None


def why_content_is_wrong(message: PageData, memory: KVMemory) -> str | None:
    """The content must have the dtype and the shape of the storage, and a checksum of each page, or none."""
    dtype, shape = memory.store.kv(message.pool).dtype, shape_of(memory, message.pool, message.num_pages)
    if (message.pages.dtype, message.pages.shape) != (dtype, shape):
        return f"{message.pages.dtype} {list(message.pages.shape)}; want {dtype} {list(shape)}"
    if len(message.checksums) not in (0, message.num_pages):
        return f"{len(message.checksums)} checksums; want {message.num_pages}, or none"
    return None


def why_end_is_wrong(end: TransferEnd, *, num_tokens: int, vocab_size: int | None) -> str | None:
    if len(end.tokens) != num_tokens:
        return f"{len(end.tokens)} tokens; want {num_tokens}"
    if vocab_size is not None and not all(0 <= token < vocab_size for token in end.tokens):
        return f"tokens {end.tokens}; the vocabulary has {vocab_size}"
    return None


def why_invitation_is_wrong(invitation: Invitation, *, prompt_len: int, page_size: int) -> str | None:
    """The prefix must be whole pages, and leave at least one token of the prompt to compute."""
    if not 0 <= invitation.prefix_len < prompt_len or invitation.prefix_len % page_size:
        return (
            f"a prefix of {invitation.prefix_len} tokens; want whole pages of {page_size}, and less than {prompt_len}"
        )
    return None
