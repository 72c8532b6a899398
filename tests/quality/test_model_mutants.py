"""A comparison with transformers detects planted bugs of the model, also bugs that our own reference would share."""

from operator import attrgetter

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.engines.own.mutants.catalog import BUGS
from swarden.harness.search.mutants.unplanted import DetectedByTest
from tests.engine_under_test.model.checkpoints import oracle_logits, some_tokens, write_checkpoint

TOKENS = some_tokens(50)
CONFIG = EngineConfig(page_size=4, full_pages=32, chunk_len=7)
FAMILIES = {"S112": "gpt-oss"}
PLANTED = [{bug.id: bug for bug in BUGS}[name] for name in ("S110", "S111", "S112", "S116")]


def distance_from_the_oracle(directory, family):
    """The largest difference between the logits of our engine and those of transformers, for a prompt in chunks."""
    model = write_checkpoint(directory, family)
    engine = create_engine(CONFIG, checkpoint=directory)
    [generation] = engine.generate([TOKENS.tolist()], SamplingParams(1, return_logits=True))
    expected = oracle_logits(model, TOKENS)
    return max(float((generation.logits[position] - expected[position]).abs().max()) for position in range(len(TOKENS)))


@pytest.mark.parametrize("family", ["gemma3", "gpt-oss"])
def test_healthy_model_agrees_with_transformers(tmp_path, family):
    assert distance_from_the_oracle(tmp_path, family) < 1e-4


@pytest.mark.parametrize("mutant", PLANTED, ids=attrgetter("id"))
def test_planted_bug_of_the_model_changes_the_logits(tmp_path, mutant):
    with mutant.planted():
        distance = distance_from_the_oracle(tmp_path, FAMILIES.get(mutant.id, "gemma3"))

    assert distance > 1e-3


def test_each_bug_that_only_this_test_detects_is_planted_here():
    here = [
        bug
        for bug in BUGS
        if isinstance(bug, DetectedByTest) and bug.detected_by == "tests/quality/test_model_mutants.py"
    ]

    assert [row for row in here if row not in PLANTED] == []
