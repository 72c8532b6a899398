"""The engine reads a config.json as transformers does, or raises an error with the file and the key."""

from dataclasses import fields

import pytest
from transformers import AutoConfig

from swarden.engine_under_test.model.families import FAMILIES
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.model.tiny import LLAMA3, YARN, by_type, tiny_config
from tests.engine_under_test.model.configs import ARCHITECTURES, OWN, USUAL
from tests.engine_under_test.model.sieve import Outcome, judge, judged_configs

EQUAL, REFUSED = Outcome.EQUAL, Outcome.REFUSED
SAMPLE = 60  # of each family; 2,000 of all take a few minutes: python -m tests.engine_under_test.model.sieve
SHORT_YARN = YARN | {"original_max_position_embeddings": 32}
TWO_SCALES = SHORT_YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}
LINEAR = {"rope_type": "linear", "factor": 4.0}


def full_yarn(**changes):
    """Rope parameters by layer type whose full layers are stretched."""
    return by_type(sliding_theta=1e4, full_theta=1e6) | {FULL: SHORT_YARN | changes}


@pytest.mark.parametrize(
    ("family", "changes", "outcome"),
    [
        ("qwen3", {"rope_parameters": TWO_SCALES}, EQUAL),
        ("mistral", {"rope_scaling": TWO_SCALES}, EQUAL),
        ("qwen2", {"rope_scaling": LINEAR}, EQUAL),
        ("gemma3", {"rope_scaling": LINEAR}, EQUAL),
        ("gemma2", {"layer_types": None, "sliding_window_pattern": 3}, REFUSED),
        ("gpt-oss", {"layer_types": None, "sliding_window_pattern": 3}, REFUSED),
        ("olmo3", {"layer_types": None, "sliding_window_pattern": 3}, REFUSED),
        ("mistral", {"sliding_window_pattern": 3}, REFUSED),
        ("olmo3", {"rope_parameters": full_yarn(truncate=True), "original_max_position_embeddings": 4096}, EQUAL),
        ("llama", {"rope_parameters": LLAMA3, "original_max_position_embeddings": 4096}, EQUAL),
        ("olmo3", {"rope_parameters": full_yarn(truncate=False)}, EQUAL),
        ("gemma3", {"rope_parameters": full_yarn(truncate=False)}, EQUAL),
        ("olmo3", {"rope_parameters": full_yarn() | {"truncate": None}}, REFUSED),
        ("gemma3", {"rope_parameters": full_yarn() | {"truncate": True}}, EQUAL),
        ("qwen3", {"rope_parameters": SHORT_YARN | {"truncate": None}}, EQUAL),
        ("qwen3", {"rope_parameters": SHORT_YARN | {"beta_fast": 1.0, "beta_slow": 8.0}}, EQUAL),
        ("gpt-oss", {"rope_parameters": None, "rope_theta": 1e4}, EQUAL),
        ("olmo3", {"rope_parameters": None, "rope_theta": 1e4}, REFUSED),
        (
            "gemma3",
            {
                "rope_parameters": None,
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
                "rope_scaling": {"type": "linear", "factor": 8.0},
            },
            REFUSED,
        ),
        ("mistral", {"layer_types": [SLIDING, FULL, SLIDING], "head_dim": 16}, EQUAL),
        ("gpt-oss", {"num_experts": 2}, REFUSED),
        ("qwen3", {"is_causal": False}, REFUSED),
        ("qwen3", {"is_causal": None}, REFUSED),
        ("llama", {"model_type": "qwen3"}, REFUSED),
    ],
)
def test_config_that_is_easily_misread_is_equal_or_refused(tmp_path, family, changes, outcome):
    judged = judge(tiny_config(family) | changes, tmp_path)

    assert (judged.outcome, judged.reason * (judged.outcome is Outcome.DIFFERENT)) == (outcome, "")


@pytest.mark.parametrize("model_type", OWN)
def test_config_drawn_at_random_is_equal_or_refused(model_type):
    judged = list(judged_configs(SAMPLE, seed=20, model_types=[model_type]))

    different = [f"{trial.reason}: {trial.values}" for trial in judged if trial.outcome is Outcome.DIFFERENT]
    num_equal = [trial.outcome for trial in judged].count(EQUAL)
    assert different == []
    assert num_equal >= SAMPLE // 3


@pytest.mark.parametrize("model_type", OWN)
def test_every_key_of_the_configuration_class_is_drawn(model_type):
    by_shape = {"architectures", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"}
    elsewhere = {"rope_parameters", "layer_types"}

    of_class = {field.name for field in fields(type(AutoConfig.for_model(model_type)))}

    assert of_class - by_shape - elsewhere - set(USUAL) - set(OWN[model_type]) == set()


def test_every_family_is_drawn():
    assert {ARCHITECTURES[model_type]: model_type for model_type in OWN} == {
        architecture: family.model_type for architecture, family in FAMILIES.items()
    }
