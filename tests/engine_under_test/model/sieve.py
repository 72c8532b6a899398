"""Compares the engine with transformers on random configurations: equal logits, or a one-line error.

    python -m tests.engine_under_test.model.sieve --configs 2000 --seed 1

draws configurations of every family in turn, and prints a table of outcomes and the configurations that differ.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.utils import logging

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.model.checkpoint import load_decoder, read_spec
from swarden.engine_under_test.model.spec import ModelSpec
from tests.engine_under_test.model.checkpoints import CPU, oracle_logits, some_tokens, write_checkpoint_as_is
from tests.engine_under_test.model.configs import OWN, drawn_config
from tests.engine_under_test.model.dense import dense_logits

NUM_TOKENS = 96  # longer than every window, and than most original lengths of stretched ropes
CLOSE = 1e-4
TIE = 1e-4  # with a smaller distance between the two likeliest tokens either is right
REFUSAL = re.compile(r"(config\.json|model\.safetensors): [\w.]+ [^\n]+")
# The errors of transformers and torch for a configuration that they do not support.
ORACLE_REFUSALS = (
    StrictDataclassError,
    ValueError,
    OverflowError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    RuntimeError,
    ZeroDivisionError,
    AssertionError,
)


class Outcome(StrEnum):
    EQUAL = "equal"
    REFUSED = "refused"
    REFUSED_BY_BOTH = "refused by both"
    NO_ORACLE = "refused by transformers alone"  # not compared, and not counted as equal
    DIFFERENT = "different"


class Judged(NamedTuple):
    """One configuration with its outcome, and the error or the difference as text."""

    values: dict[str, Any]
    outcome: Outcome
    reason: str = ""


def judge(values: dict[str, Any], directory: Path) -> Judged:
    """Compare both on a checkpoint with random weights, which is written to `directory`."""
    token_ids = some_tokens(NUM_TOKENS, vocab_size=96)
    try:
        model = write_checkpoint_as_is(directory, values)
        expected = oracle_logits(model, token_ids)
        oracle_refusal = "" if expected.isfinite().all() else "logits are not finite"
    except ORACLE_REFUSALS as error:
        oracle_refusal = f"{type(error).__name__}: {error}"
    try:
        spec = read_spec(directory)
        if oracle_refusal:
            return Judged(values, Outcome.NO_ORACLE, oracle_refusal)
        difference = _unseen_difference(spec, model) or _difference(_logits(directory, token_ids), expected)
        return Judged(values, Outcome.DIFFERENT if difference else Outcome.EQUAL, difference)
    except CheckpointError as refusal:
        if not REFUSAL.fullmatch(str(refusal).removeprefix(f"{directory}/")):
            return Judged(values, Outcome.DIFFERENT, f"a refusal without file and key: {refusal}")
        return Judged(values, Outcome.REFUSED_BY_BOTH if oracle_refusal else Outcome.REFUSED, str(refusal))
    except ORACLE_REFUSALS as error:
        return Judged(values, Outcome.DIFFERENT, f"a crash: {type(error).__name__}: {error}")


@torch.inference_mode()
def _logits(directory: Path, token_ids: torch.Tensor) -> torch.Tensor:
    return dense_logits(load_decoder(directory, dtype=torch.float32, device=CPU), token_ids)


def _unseen_difference(spec: ModelSpec, model: Any) -> str:
    """The differences that the logits do not show: the end tokens, and a long window."""
    ends, window = model.generation_config.eos_token_id, getattr(model.config, "sliding_window", None)
    if spec.eos_token_ids != tuple(ends if isinstance(ends, list) else [ends] * (ends is not None)):
        return f"end tokens: {spec.eos_token_ids}, of transformers {ends}"
    if spec.sliding_window not in (None, window):
        return f"window: {spec.sliding_window}, of transformers {window}"
    return ""


def _difference(logits: torch.Tensor, expected: torch.Tensor) -> str:
    """The first position with different logits or another likeliest token, as text; empty where there is none."""
    distances = (logits - expected).abs().amax(dim=-1)
    first, second = expected.topk(2).values.unbind(-1)
    is_other = (logits.argmax(-1) != expected.argmax(-1)) & (first - second > TIE)
    differing = ((distances > CLOSE) | is_other).nonzero().flatten().tolist()
    if not differing:
        return ""
    return f"position {differing[0]}: logits differ by {distances[differing[0]]:.2g}, at most by {distances.max():.2g}"


def judged_configs(count: int, seed: int, model_types: Iterable[str] = tuple(OWN)) -> Iterator[Judged]:
    """`count` judged configurations, of each family in turn."""
    turns = cycle(model_types)
    random = Random(seed)
    for _ in range(count):
        with tempfile.TemporaryDirectory() as directory:
            yield judge(drawn_config(random, next(turns)), Path(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcomes: Counter[tuple[str, str]] = Counter()
    for number, judged in enumerate(judged_configs(given.configs, given.seed)):
        outcomes[list(OWN)[number % len(OWN)], judged.outcome] += 1
        if judged.outcome is Outcome.DIFFERENT:
            sys.stdout.write(f"{judged.reason}\n  {json.dumps(judged.values)}\n")
    for model_type in (*OWN, "all"):
        of_family = [
            f"{sum(outcomes[one, outcome] for one in OWN if model_type in (one, 'all')):5} {outcome}"
            for outcome in Outcome
        ]
        sys.stdout.write(f"{model_type:12}{', '.join(of_family)}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    main()
