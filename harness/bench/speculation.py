"""The gain of speculation: output tokens per second of CPU with and without prompt lookup, in turns.

Each prompt repeats one phrase.  A model with random weights soon repeats its output too, like an answer that quotes
its prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.bench.generation import SHAPES, on_each_checkpoint
from swarden.invariants.events import Event, Verified

REQUESTS = 8
PHRASE_LEN, REPEATS = 12, 6
NEW_TOKENS = 96
DRAFT_TOKENS = 4
ROUNDS = 3
PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Saving:
    """One checkpoint: output tokens per second, the mean accepted drafts per proposal, and the equal outputs."""

    checkpoint: str
    drafted: float
    plain: float
    accepted_len: float
    equal_outputs: int

    @property
    def ratio(self) -> float:
        return self.drafted / self.plain

    def __str__(self) -> str:
        return (
            f"{self.checkpoint}: {self.ratio:.2f} ({self.drafted:.1f} / {self.plain:.1f} output tokens a second of "
            f"CPU; {self.accepted_len:.2f} of {DRAFT_TOKENS} draft tokens accepted; {self.equal_outputs} of {REQUESTS} "
            "outputs equal)"
        )


class AcceptanceCounter:
    """An observer that counts proposals and their accepted draft tokens."""

    def __init__(self) -> None:
        self.num_proposals = self.num_accepted = 0

    def notice(self, event: Event) -> None:
        if isinstance(event, Verified):
            self.num_proposals += 1
            self.num_accepted += event.num_accepted


def prompts(vocab_size: int, *, requests: int = REQUESTS, seed: int = 0) -> list[list[int]]:
    """Prompts that each repeat a phrase of their own; tokens 0 and 1 are reserved for the model."""
    random = Random(seed)
    return [[random.randrange(2, vocab_size) for _ in range(PHRASE_LEN)] * REPEATS for _ in range(requests)]


def measure(checkpoint: str, directory: Path, *, rounds: int = ROUNDS, new_tokens: int = NEW_TOKENS) -> Saving:
    """Serve the same requests greedily with and without drafts, in turns; the result is the median of the rounds."""
    load = prompts(SHAPES[checkpoint]["vocab_size"])
    most = max(map(len, load)) + new_tokens + DRAFT_TOKENS
    plain = EngineConfig(
        page_size=PAGE_SIZE,
        full_pages=len(load) * num_pages(most, PAGE_SIZE),
        max_running_requests=len(load),
        max_context_len=most,
    )
    drafting = replace(plain, lookahead_tokens=DRAFT_TOKENS, draft_tokens=DRAFT_TOKENS)
    speeds: dict[EngineConfig, list[float]] = {plain: [], drafting: []}
    outputs = {}
    for _ in range(rounds):
        for config in speeds:
            seconds, outputs[config] = _served(config, directory, load, new_tokens)
            speeds[config].append(sum(map(len, outputs[config])) / seconds)
    judge = AcceptanceCounter()
    _served(drafting, directory, load, new_tokens, judge)
    equal = sum(one == other for one, other in zip(outputs[plain], outputs[drafting], strict=True))
    accepted_len = judge.num_accepted / max(1, judge.num_proposals)
    return Saving(checkpoint, median(speeds[drafting]), median(speeds[plain]), accepted_len, equal)


def measure_all(*, rounds: int = ROUNDS) -> list[Saving]:
    return on_each_checkpoint(partial(measure, rounds=rounds))


def figures(savings: Sequence[Saving]) -> dict[str, Any]:
    return {
        "speculation_ratio": {one.checkpoint: round(one.ratio, 3) for one in savings},
        "accepted_length": {one.checkpoint: round(one.accepted_len, 3) for one in savings},
        "speculation_tokens_per_second": {
            one.checkpoint: [round(one.drafted, 1), round(one.plain, 1)] for one in savings
        },
    }


def text(savings: Sequence[Saving]) -> str:
    return "\n".join(["with prompt lookup against without:", *map(str, savings)])


def _served(
    config: EngineConfig,
    directory: Path,
    load: Sequence[Sequence[int]],
    new_tokens: int,
    judge: AcceptanceCounter | None = None,
) -> tuple[float, list[list[int]]]:
    engine = create_engine(config, checkpoint=directory, ports=Ports(observer=judge))
    began = process_time()
    outputs = [one.token_ids for one in engine.generate(load, SamplingParams(new_tokens))]
    return process_time() - began, outputs
