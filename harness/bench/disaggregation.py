"""The cost of a link: a pair of engines linked over TCP on loopback, against the same pair linked in process.

One process steps both pairs, so that only the link differs.  Prompts are long and outputs short, so most of the work
besides the prefill is sending.  The bytes of the sent frames are compared with those of the necessary pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import process_time, sleep
from typing import Any

from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import Seal, encode
from swarden.engine_under_test.disaggregation.link import InProcessLink
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on, new_secret
from swarden.engine_under_test.messages import Message
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.pair import Pair, create_pair
from swarden.engine_under_test.ports import Link, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.bench.generation import SHAPES, on_each_checkpoint

REQUESTS = 8
PROMPT_LEN = 640
NEW_TOKENS = 4
ROUNDS = 3
PAGE_SIZE = 16
POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class LinkCost:
    """One checkpoint: prompt tokens per second of CPU over each link, and bytes per request with their minimum."""

    checkpoint: str
    over_tcp: float
    within: float
    bytes_sent: float
    least_bytes: float
    page_bytes: int
    equal_outputs: int

    @property
    def ratio(self) -> float:
        return self.over_tcp / self.within

    @property
    def bytes_ratio(self) -> float:
        return self.bytes_sent / self.least_bytes

    def __str__(self) -> str:
        return (
            f"{self.checkpoint}: {self.ratio:.2f} ({self.over_tcp:.0f} / {self.within:.0f} prompt tokens a second of "
            f"CPU); {self.bytes_ratio:.4f} of the least bytes ({self.bytes_sent / 2**20:.2f} MiB a request, pages of "
            f"{self.page_bytes / 2**10:.0f} KiB); {self.equal_outputs} of {REQUESTS} outputs equal"
        )


class Counted:
    """A link that counts the bytes of its sent messages."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.num_bytes = 0

    def send(self, message: Message) -> None:
        self.num_bytes += sum(map(len, encode(message, Seal(b""))))
        self._link.send(message)

    def receive(self) -> list[Message]:
        return self._link.receive()

    def reject(self, detail: str) -> None:
        self._link.reject(detail)

    @property
    def is_clear(self) -> bool:
        return self._link.is_clear

    @property
    def lag_ms(self) -> int:
        return self._link.lag_ms


def prompts(vocab_size: int) -> list[list[int]]:
    """Prompts without common prefixes."""
    random = Random(0)
    return [[random.randrange(2, vocab_size) for _ in range(PROMPT_LEN)] for _ in range(REQUESTS)]


def measure(checkpoint: str, directory: Path, *, rounds: int = ROUNDS) -> LinkCost:
    """Serve the same requests with both pairs in turns; the result is the median of the rounds."""
    load, window = prompts(SHAPES[checkpoint]["vocab_size"]), read_spec(directory).sliding_window
    pages = num_pages(PROMPT_LEN + NEW_TOKENS, PAGE_SIZE) * REQUESTS
    config = EngineConfig(
        page_size=PAGE_SIZE,
        full_pages=pages,
        swa_pages=pages,
        sliding_window=window,
        max_running_requests=REQUESTS,
        max_context_len=PROMPT_LEN + NEW_TOKENS,
    )
    speeds: dict[bool, list[float]] = {True: [], False: []}
    outputs: dict[bool, list[list[int]]] = {}
    for _ in range(rounds):
        for is_tcp in speeds:
            ends = _tcp_ends(config) if is_tcp else InProcessLink.pair()
            pair = _pair(config, directory, ends)
            began = process_time()
            outputs[is_tcp] = [one.token_ids for one in pair.generate(load, SamplingParams(NEW_TOKENS))]
            speeds[is_tcp].append(PROMPT_LEN * REQUESTS / (process_time() - began))
            for end in ends:
                if isinstance(end, TcpLink):
                    end.close()
    counted = [Counted(end) for end in InProcessLink.pair()]
    pair = _pair(config, directory, counted)
    pair.generate(load, SamplingParams(NEW_TOKENS))
    least = _min_bytes(pair, [len(prompt) for prompt in load])
    return LinkCost(
        checkpoint,
        median(speeds[True]),
        median(speeds[False]),
        sum(end.num_bytes for end in counted) / REQUESTS,
        least / REQUESTS,
        min(map(pair.prefill.memory.store.page_bytes, pair.prefill.memory.store.pools)),
        sum(one == other for one, other in zip(outputs[True], outputs[False], strict=True)),
    )


def measure_all(*, rounds: int = ROUNDS) -> list[LinkCost]:
    return on_each_checkpoint(partial(measure, rounds=rounds))


def figures(costs: Sequence[LinkCost]) -> dict[str, Any]:
    return {
        "tcp_ratio": {one.checkpoint: round(one.ratio, 3) for one in costs},
        "sent_bytes_ratio": {one.checkpoint: round(one.bytes_ratio, 5) for one in costs},
        "tcp_tokens_per_second": {one.checkpoint: [round(one.over_tcp, 1), round(one.within, 1)] for one in costs},
    }


def text(costs: Sequence[LinkCost]) -> str:
    return "\n".join(["a pair linked over TCP against one linked within its process:", *map(str, costs)])


def _pair(config: EngineConfig, directory: Path, ends: Sequence[Link]) -> Pair:
    first, second = (Ports(link=end) for end in ends)
    return create_pair(config, checkpoint=directory, ports=(first, second))


def _tcp_ends(config: EngineConfig) -> tuple[TcpLink, TcpLink]:
    """Both ends of a connected link."""
    listener, secret = listener_on((LOOPBACK, 0)), new_secret()
    ends = TcpLink(listener, secret, config), TcpLink(listener.getsockname(), secret, config)
    while not all(end.is_connected for end in ends):
        sleep(POLL_S)
    return ends


def _min_bytes(pair: Pair, lengths: Sequence[int]) -> int:
    """The bytes of all pages of the prompts; in a windowed pool, of the pages that the token after the prompt reads.

    The pages are counted position by position, independently of the sender's code.
    """
    memory = pair.prefill.memory
    return sum(
        memory.store.page_bytes(pool.name) * len({position // PAGE_SIZE for position in _read_after(length, pool)})
        for pool in memory.pools
        for length in lengths
    )


def _read_after(length: int, pool: Component) -> range:
    """The positions of a prompt that its first new token, at position `length`, attends to."""
    return range(0 if pool.window is None else max(0, length + 1 - pool.window), length)
