"""The gain of speculation: output tokens per second of CPU with prompt lookup and without it.

Each prompt repeats one phrase.  A model with random weights soon repeats its output too, like an answer that quotes
its prompt.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from statistics import mean

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.ports import Ports
from swarden.harness.bench.checkpoints import Checkpoint, Served, config_for, race, serve
from swarden.harness.bench.timing import Measured
from swarden.invariants.events import Event, Verified

HEAD = "with prompt lookup against without:"
REQUESTS = 8
PHRASE_LEN, REPEATS = 12, 6
NEW_TOKENS = 96
DRAFT_TOKENS = 4


class Acceptances:
    """An observer of the accepted draft tokens of each proposal."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def notice(self, event: Event) -> None:
        if isinstance(event, Verified):
            self.lengths.append(event.num_accepted)


def measure(checkpoint: Checkpoint, *, pairs: int) -> Iterator[Measured]:
    """Serve the same requests greedily with and without drafts."""
    load = prompts(checkpoint)
    plain = config_for(load, NEW_TOKENS + DRAFT_TOKENS)
    drafting = replace(plain, lookahead_tokens=DRAFT_TOKENS, draft_tokens=DRAFT_TOKENS)

    def served(config: EngineConfig, observer: Acceptances | None = None) -> Served:
        engine = create_engine(config, checkpoint=checkpoint.directory, ports=Ports(observer=observer))
        return serve(engine, load, NEW_TOKENS)

    both = race(lambda: served(drafting), lambda: served(plain), tokens=REQUESTS * NEW_TOKENS, pairs=pairs)
    acceptances = Acceptances()
    served(drafting, acceptances)
    accepted_len = mean(acceptances.lengths or [0])
    yield both.measured(
        checkpoint.name,
        f"output tokens a second of CPU; {accepted_len:.2f} of {DRAFT_TOKENS} draft tokens accepted",
        {
            "speculation_ratio": {checkpoint.name: both.speeds.ratio},
            "accepted_length": {checkpoint.name: round(accepted_len, 3)},
            "speculation_tokens_per_second": {checkpoint.name: both.speeds.sides},
        },
    )


def prompts(checkpoint: Checkpoint) -> list[list[int]]:
    """Prompts that each repeat a phrase of their own."""
    random = Random(0)
    return [checkpoint.tokens(random, PHRASE_LEN) * REPEATS for _ in range(REQUESTS)]
