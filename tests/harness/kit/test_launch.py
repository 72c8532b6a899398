"""The settings of launch lines that were posted in public reports, and lines that cannot be understood."""

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.search.fixed_settings import fixed_for
from tests.harness.some_commands import swarden

SGLANG, VLLM = SglangTarget("0.5.23"), VllmTarget("0.33.0")
SERVER, EAGLE = "python3 -m sglang.launch_server --model-path", '{"method":"eagle3","num_speculative_tokens":3}'
OFFLOADING = (
    '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"block_size":64,'
    '"cpu_bytes_to_use":10000000000}}'
)
LINES = {  # by what it launches: the line, the machine that drives it, and some of its settings
    "prefill-server-with-storage": (
        f"{SERVER} deepseek-ai/DeepSeek-V3 --tp 8 --page-size 64 --enable-hierarchical-cache --hicache-ratio 3 "
        "--hicache-storage-backend mooncake --hicache-storage-prefetch-policy wait_complete "
        "--disaggregation-mode prefill",
        "pd",
        {"page_size": 64, "host_ratio": 3.0, "storage_policy": "wait_complete", "role": "prefill", "rust_core": True},
    ),
    "drafts": (
        f"{SERVER} meta-llama/Llama-3.1-8B --speculative-algorithm EAGLE3 --speculative-num-steps 5 "
        "--speculative-eagle-topk 8 --speculative-num-draft-tokens 16 --dtype float16",
        "engine",
        {"draft_len": 15, "sliding_window": None, "page_size": 1},
    ),
    "window-and-pages-of-256": (
        "SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT=1 sglang serve openai/gpt-oss-120b --page-size 256 "
        "--max-running-requests 128 --schedule-policy lpm --enable-mixed-chunk",
        "engine",
        {
            "page_size": 256,
            "max_running_requests": 128,
            "sliding_window": 127,
            "chunk_len": 2048,
            "splits_leaves": True,
        },
    ),
    "chunks-of-8192": (
        f"{SERVER} deepseek-ai/DeepSeek-R1 --chunked-prefill-size 8192 --schedule-conservativeness 0.3 "
        "--disable-overlap-schedule --disable-radix-cache",
        "engine",
        {"chunk_len": 256, "overlap": False, "tree": "none", "new_token_ratio": pytest.approx(0.21)},
    ),
    "states-with-buffers": (
        f"{SERVER} Qwen/Qwen3-Next-80B-A3B --page-size 64 --max-running-requests 48 --enable-hierarchical-cache",
        "engine",
        {"state_strategy": "extra_buffer", "state_slots": 240, "state_interval": 64, "write_policy": "write_through"},
    ),
    "128-requests-and-blocks-of-256": (
        "vllm serve meta-llama/Llama-3.3-70B --enable-prefix-caching --max-num-seqs 128 --block-size=256 -tp 8",
        "engine",
        {"block_size": 256, "max_running_requests": 128, "asynchronous": True, "retention_interval": 0},
    ),
    "windows": (
        "vllm serve google/gemma-3-27b-it --max-model-len 32k --max-num-batched-tokens 8192 "
        "--scheduling-policy priority",
        "engine",
        {"windows": (32,) * 5, "windows_first": True, "policy": "priority", "chunk_len": 256},
    ),
    "window-blocks-smaller-than-full-ones": (
        "vllm serve google/gemma-4-31B-it --max-num-seqs 16",
        "engine",
        {"block_size": 32, "window_block_sizes": (16,) * 5, "num_blocks": 181},
    ),
    "states-wider-than-a-pass": (
        "vllm serve Qwen/Qwen3-Next-80B-A3B --max-num-batched-tokens 512 --block-size 1648 --max-num-seqs 64",
        "engine",
        {"state_groups": 3, "block_size": 1648, "chunk_len": 512},
    ),
    "lmcache": (
        """vllm serve Qwen/Qwen3-32B --kv-transfer-config '{"kv_connector":"LMCacheConnectorV1"}'""",
        "engine",
        {"external_len": 64, "late_loads": False, "recomputes_loads": False},
    ),
    "mooncake-store": (
        """vllm serve a/b --kv-transfer-config '{"kv_connector":"MooncakeStoreConnector",
        "kv_connector_extra_config":{"lookup_async":true}}'""",
        "engine",
        {"mooncake_blocks": 128, "late_look_ups": True},
    ),
    "offloading-with-drafts": (
        f"vllm serve openai/gpt-oss-20b --kv-transfer-config '{OFFLOADING}' --speculative-config '{EAGLE}'",
        "engine",
        {"cpu_chunks": 32, "chunk_blocks": 4, "draft_len": 3, "drafter": "eagle", "windows": (16,)},
    ),
    "a-side-of-nixl": (
        "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-0.6B --kv-transfer-config "
        """'{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_load_failure_policy":"recompute"}'""",
        "pd",
        {"role": "decode", "has_both_roles": False, "recomputes_loads": True},
    ),
    "ngrams": (
        """vllm serve a/b --speculative_config '{"method":"ngram","num_speculative_tokens":5}' """
        "--no-async-scheduling --no-enable-prefix-caching",
        "engine",
        {"drafter": "ngram", "draft_len": 5, "asynchronous": False, "prefix_caching": False},
    ),
}


@pytest.mark.parametrize(("text", "machine", "wanted"), LINES.values(), ids=LINES)
def test_a_posted_line_has_its_settings(text, machine, wanted):
    """They are those of a configuration, which can be built; what a line does not say is as in a server."""
    found = (SGLANG if "sglang" in text else VLLM).launched(text)

    assert found.machine == machine
    assert {name: found.settings[name] for name in wanted} == wanted


def test_options_that_are_not_driven_are_listed():
    """Options without a setting, and what of others is left out."""
    found = SGLANG.launched(LINES["prefill-server-with-storage"][0])

    assert found.not_driven[0] == "--tp 8"
    assert "the code of the storage backend mooncake" in found.not_driven


def test_lengths_keep_their_ratios():
    """A page stays as it is; a chunk and a window are divided by the same number."""
    found = VLLM.launched("vllm serve gemma-3 --max-num-batched-tokens 4096 --block-size 16 --max-num-seqs 8")

    assert found.not_driven == ["lengths in tokens but for pages, which are divided by 16"]
    assert found.settings["block_size"] == 16
    assert (found.settings["chunk_len"], found.settings["windows"][0]) == (4096 // 16, 1024 // 16)


def test_defaults_are_those_of_the_release():
    """An older release keeps all cached blocks of a window, and its tree is the one in Python."""
    assert VllmTarget("0.28.0").launched("vllm serve a/b").settings["retention_interval"] is None
    assert not SglangTarget("0.5.17").launched("sglang serve a/b").settings["rust_core"]


def test_the_other_side_of_a_pair_has_no_setting_of_one_side():
    """A launched prefill server has a host tier; the decode side beside it has the same pages, and no host tier."""
    settings = SGLANG.launched(LINES["prefill-server-with-storage"][0]).settings

    of_decode = fixed_for(SGLANG, {"role": "decode"}, settings)

    assert fixed_for(SGLANG, {"role": "prefill"}, settings) == settings
    assert of_decode["page_size"] == 64
    assert not {"role", "host_ratio", "storage_policy"} & of_decode.keys()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("vllm serve m --block-size many", "--block-size is 'many'; want a whole number"),
        ("vllm serve m --block-size 0", "want at least 1"),
        ("vllm serve m --async-scheduling maybe", "want true or 1 or false or 0"),
        ("vllm serve m --speculative-config eagle", "want an object in JSON"),
        ("""vllm serve m --speculative-config '{"num_speculative_tokens": "x"}'""", "want a whole number"),
        (
            """vllm serve m --kv-transfer-config '{"kv_connector_extra_config": "x"}'""",
            "a connector: Expected `object`",
        ),
        ("vllm serve m --scheduling-policy lifo", 'policy is "lifo", want "fcfs" or "priority"'),
        ("vllm serve 'm", "cannot be split"),
    ],
)
def test_a_line_with_a_bad_value_is_refused(text, want):
    """The error names the option and what it can be."""
    with pytest.raises(UsageError, match="--launch: ") as error:
        VLLM.launched(text)

    assert want in str(error.value)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (("--launch", "ollama serve"), "'ollama serve' is no program of a server that is driven; want one of"),
        (("--launch", "vllm serve m", "--engine", "sglang"), "is a server of vllm, not of sglang"),
        (("--launch", "vllm serve m", "--engine", "vllm", "--engine", "sglang"), "is for one engine"),
    ],
)
def test_a_line_of_another_program_is_refused(options, want, tmp_path):
    """Exit code 2 and one line, before anything is started."""
    run = swarden("fuzz", *options, cwd=tmp_path)

    assert (run.returncode, want in run.stderr) == (2, True)
