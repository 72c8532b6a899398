"""An engine with a checkpoint: its fitted configuration, its errors, and its outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.errors import ConfigError, EngineError
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.runner import ModelForward, fitted
from swarden.engine_under_test.model.tiny import tiny_spec
from swarden.engine_under_test.model.weights import random_tensors
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE
from tests.engine_under_test.model.checkpoints import some_tokens, write_checkpoint
from tests.engine_under_test.model.device import DEVICE

BARE = EngineConfig(page_size=4, full_pages=40, max_running_requests=3, max_context_len=128)
PROMPT = some_tokens(17).tolist()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    directory: Path = tmp_path_factory.mktemp("gemma3")
    write_checkpoint(directory, "gemma3")
    return directory


@pytest.mark.parametrize(
    ("family", "given", "pools"),
    [
        pytest.param("gemma3", {}, [("full", 40, None), ("swa", 44, 8)], id="defaults"),
        pytest.param(
            "gemma3", {"swa_pages": 7, "sliding_window": 8}, [("full", 40, None), ("swa", 7, 8)], id="explicit values"
        ),
        pytest.param("mistral", {}, [("swa", 44, 8)], id="no full layer"),
        pytest.param(
            "recurrent-gemma", {}, [("full", 40, None), ("swa", 44, 8), ("state", 9, 2)], id="no full layer, recurrent"
        ),
        pytest.param("bamba", {"state_interval": 8}, [("full", 40, None), ("state", 25, 2)], id="checkpoints"),
        pytest.param("bamba", {"state_pages": 5}, [("full", 40, None), ("state", 5, 2)], id="explicit states"),
    ],
)
def test_fitted_configuration_has_the_pools_of_the_layers(family, given, pools):
    config = fitted(replace(BARE, **given), tiny_spec(family), source="config.json")

    assert [pool[:3] for pool in config.pools] == pools


def test_context_is_at_most_that_of_the_model():
    spec = tiny_spec("gemma3", max_position_embeddings=96)

    assert fitted(BARE, spec, source="config.json").max_context_len == 96


@pytest.mark.parametrize(
    ("family", "given", "problem"),
    [
        ("gemma3", {"swa_pages": 9, "sliding_window": 9}, "sliding_window: 8"),
        ("gemma3", {"full_pages": 0, "swa_pages": 9, "sliding_window": 8}, "full_pages: some layers read the"),
        ("qwen3", {"swa_pages": 9, "sliding_window": 8}, "sliding_window: no layer has one"),
        ("gemma3", {"state_pages": 9}, "state_pages: no layer is recurrent"),
        ("recurrent-gemma", {"full_pages": 0, "swa_pages": 14, "sliding_window": 8}, "full_pages: states belong"),
        ("bamba", {"draft_tokens": 4, "lookahead_tokens": 4}, "state_slots: 3 with draft_tokens 4"),
    ],
)
def test_configuration_that_does_not_fit_the_model_raises_with_the_key(family, given, problem):
    types = {"qwen3": {"layer_types": ["full_attention"] * 3}}.get(family, {})

    with pytest.raises(ConfigError, match=f"^there/config.json: {problem}"):
        fitted(replace(BARE, **given), tiny_spec(family, **types), source="there/config.json")


@pytest.mark.parametrize("chunk_len", [None, 5])
def test_outputs_have_the_logits_of_every_computed_position(checkpoint, chunk_len):
    engine = create_engine(replace(BARE, chunk_len=chunk_len), checkpoint=checkpoint, device=str(DEVICE))

    [answer, plain] = engine.generate([PROMPT], SamplingParams(4, return_logits=True)) + engine.generate(
        [PROMPT], SamplingParams(4)
    )

    assert list(answer.logits) == list(range(len(PROMPT) + 3))
    assert {row.shape for row in answer.logits.values()} == {(128,)}
    assert [int(answer.logits[len(PROMPT) - 1 + index].argmax()) for index in range(4)] == answer.token_ids
    assert (plain.logits, plain.token_ids) == ({}, answer.token_ids)


def test_requests_without_a_seed_get_different_tokens(checkpoint):
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE))

    drawn = engine.generate([PROMPT] * 3, SamplingParams(12, temperature=3.0))
    seeded = engine.generate([PROMPT] * 3, SamplingParams(12, temperature=3.0, seed=5))

    assert len({tuple(answer.token_ids) for answer in drawn}) == 3
    assert len({tuple(answer.token_ids) for answer in seeded}) == 1


def test_level_census_poisons_freed_pages(checkpoint, monkeypatch):
    monkeypatch.setenv(VARIABLE, "census")
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE))

    engine.generate([PROMPT], SamplingParams(4))
    engine.flush()

    assert engine.memory.store.kv("full")[:, :, 1:].isnan().any()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        pytest.param({}, "checkpoint: not given, and no forward is given", id="nothing to run"),
        pytest.param({"dtype": "int4"}, "dtype: 'int4' is not one of float32, float64, bfloat16", id="dtype"),
        pytest.param({"device": "abacus"}, "device: 'abacus' cannot be used", id="device"),
    ],
)
def test_unusable_argument_raises_with_its_name(checkpoint, given, line):
    arguments = given and {"checkpoint": checkpoint, **given}

    with pytest.raises(ConfigError, match=line):
        create_engine(BARE, **arguments)


def test_bfloat16_checkpoint_generates(checkpoint):
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE), dtype="bfloat16")

    [answer] = engine.generate([PROMPT], SamplingParams(4, return_logits=True))

    assert (engine.memory.store.kv("swa").dtype, len(answer.token_ids)) == (torch.bfloat16, 4)


@pytest.mark.parametrize("token", [128, -1])
def test_prompt_with_an_unknown_token_is_rejected(checkpoint, token):
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE))

    rejected, served = engine.generate([[5, token], PROMPT], SamplingParams(2))

    assert str(rejected.finish_reason).startswith(f"rejected: token {token} at position 1; ")
    assert served.finish_reason == "length"


def test_nan_in_the_unwritten_slots_of_a_page_does_not_reach_the_output():
    decoder = random_decoder(tiny_spec("gemma3"), 1, torch.float64)
    config = fitted(replace(BARE, page_size=16, full_pages=4, max_context_len=40), decoder.spec, source="tiny")
    expected = Engine(config, Ports(ModelForward(decoder))).generate([PROMPT], SamplingParams(4))[0].token_ids
    engine = Engine(config, Ports(ModelForward(decoder)))
    for pool in engine.memory.store.pools:
        engine.memory.store.kv(pool).fill_(float("nan"))

    [answer] = engine.generate([PROMPT], SamplingParams(4))

    assert answer.token_ids == expected


def test_outputs_of_other_requests_during_generate_come_with_the_next_step(checkpoint):
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE))
    other = engine.submit(PROMPT, SamplingParams(3))

    engine.generate([PROMPT[:6]], SamplingParams(6))
    outputs = [output for output in engine.step() if output.request_id == other]

    assert [len(output.token_ids) for output in outputs] == [1, 1, 1]
    assert outputs[-1].finish_reason == "length"
    assert not engine.has_work


def test_generate_on_a_paused_engine_raises(checkpoint):
    engine = create_engine(BARE, checkpoint=checkpoint, device=str(DEVICE))
    engine.pause()

    with pytest.raises(EngineError, match="paused: "):
        engine.generate([PROMPT], SamplingParams(1))


class Breaking(Decoder):
    """A decoder that runs out of memory in its second pass."""

    passes = 0

    def hidden(self, *arguments: Any) -> torch.Tensor:
        self.passes += 1
        if self.passes == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        return super().hidden(*arguments)


@pytest.mark.parametrize("overlap", [False, True])
def test_pass_that_runs_out_of_memory_is_retried(overlap):
    spec = tiny_spec("gemma3")
    config = replace(BARE, overlap=overlap)

    def answers(kind: type[Decoder]) -> list[Generation]:
        decoder = kind(spec, random_tensors(spec, 1, torch.float64))
        engine = Engine(fitted(config, spec, source="tiny"), Ports(ModelForward(decoder)))
        return engine.generate([PROMPT, PROMPT[:9]], SamplingParams(6))

    assert [answer.token_ids for answer in answers(Breaking)] == [answer.token_ids for answer in answers(Decoder)]


def test_checkpoint_and_forward_together_raise(checkpoint):
    decoder = random_decoder(tiny_spec("gemma3"), 1, torch.float64)

    with pytest.raises(ConfigError, match="and a forward are given; give one of them"):
        create_engine(BARE, checkpoint=checkpoint, ports=Ports(ModelForward(decoder)))


@pytest.mark.parametrize(
    ("files", "ends", "ends_of_transformers"),
    [
        pytest.param({"generation_config.json": '{"eos_token_id": [7, 3]}'}, (7, 3), [7, 3], id="others"),
        pytest.param({"generation_config.json": '{"temperature": 0.6}'}, (), None, id="none"),
        pytest.param({}, (2,), 2, id="no such file"),
    ],
)
def test_end_tokens_of_the_generation_config_take_precedence(tmp_path, files, ends, ends_of_transformers):
    write_checkpoint(tmp_path, "gemma3")
    (tmp_path / "generation_config.json").unlink()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert read_spec(tmp_path).eos_token_ids == ends
    assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == ends_of_transformers
