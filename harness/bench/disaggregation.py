"""The cost of a link: a pair of engines linked over TCP on loopback, against the same pair linked in process.

One process steps both pairs, so that only the link differs.  Prompts are long and outputs short, so most of the work
besides the prefill is sending.  The bytes of the sent frames are compared with those of the necessary pages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from time import sleep

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import Seal, encode
from swarden.engine_under_test.disaggregation.link import InProcessLink
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on, new_secret
from swarden.engine_under_test.messages import Message
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.pair import Pair, create_pair
from swarden.engine_under_test.ports import Link, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.bench.checkpoints import PAGE_SIZE, Checkpoint, Served, config_for, race, serve
from swarden.harness.bench.timing import Measured
from swarden.harness.kit.calls import intercept

HEAD = "a pair linked over TCP against one linked within its process:"
REQUESTS = 8
PROMPT_LEN = 640
NEW_TOKENS = 4
POLL_S = 0.001


def measure(checkpoint: Checkpoint, *, pairs: int) -> Iterator[Measured]:
    """Serve the same requests with both pairs of engines."""
    random = Random(0)
    load = [checkpoint.tokens(random, PROMPT_LEN) for _ in range(REQUESTS)]
    full, window = config_for(load, NEW_TOKENS), read_spec(checkpoint.directory).sliding_window
    config = replace(full, swa_pages=full.full_pages, sliding_window=window)

    def linked(ends: Sequence[Link]) -> Pair:
        first, second = (Ports(link=end) for end in ends)
        return create_pair(config, checkpoint=checkpoint.directory, ports=(first, second))

    def over_tcp() -> Served:
        ends = _tcp_ends(config)
        served = serve(linked(ends), load, NEW_TOKENS)
        for end in ends:
            end.close()
        return served

    both = race(
        over_tcp,
        lambda: serve(linked(InProcessLink.pair()), load, NEW_TOKENS),
        tokens=REQUESTS * PROMPT_LEN,
        pairs=pairs,
    )
    ends, frames = InProcessLink.pair(), list[int]()

    def counted(send: Callable[[Message], None], message: Message) -> None:
        frames.extend(map(len, encode(message, Seal(b""))))
        send(message)

    for end in ends:
        intercept(end, "send", counted)
    pair = linked(ends)
    pair.generate(load, SamplingParams(NEW_TOKENS))
    ratio, store = sum(frames) / _min_bytes(pair), pair.prefill.memory.store
    yield both.measured(
        checkpoint.name,
        f"prompt tokens a second of CPU; {ratio:.4f} of the least bytes, {sum(frames) / REQUESTS / 2**20:.2f} MiB a "
        f"request in pages of {min(map(store.page_bytes, store.pools)) / 2**10:.0f} KiB",
        {
            "tcp_ratio": {checkpoint.name: both.speeds.ratio},
            "sent_bytes_ratio": {checkpoint.name: round(ratio, 5)},
            "tcp_tokens_per_second": {checkpoint.name: both.speeds.sides},
        },
    )


def _tcp_ends(config: EngineConfig) -> tuple[TcpLink, TcpLink]:
    """Both ends of a connected link."""
    listener, secret = listener_on((LOOPBACK, 0)), new_secret()
    ends = TcpLink(listener, secret, config), TcpLink(listener.getsockname(), secret, config)
    while not all(end.is_connected for end in ends):
        sleep(POLL_S)
    return ends


def _min_bytes(pair: Pair) -> int:
    """The bytes of all pages of the prompts; in a windowed pool, of the pages that the token after the prompt reads.

    The pages are counted position by position, independently of the sender's code.
    """
    memory = pair.prefill.memory
    least = 0
    for pool in memory.pools:
        first_read = 0 if pool.window is None else max(0, PROMPT_LEN + 1 - pool.window)
        pages = {position // PAGE_SIZE for position in range(first_read, PROMPT_LEN)}
        least += REQUESTS * len(pages) * memory.store.page_bytes(pool.name)
    return least
