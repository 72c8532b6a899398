"""`swarden generate`: the generated text, the figures of the pools, and the errors of invalid calls."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from swarden.engine_under_test.model.tokenizer import Tokenizer
from tests.engine_under_test.model.checkpoints import write_checkpoint
from tests.engine_under_test.model.tokenizers import write_tokenizer
from tests.harness.some_commands import swarden
from tests.harness.some_processes import processes_of, running, wait_until

SIDES = ["decode full", "decode swa", "prefill full", "prefill swa"]
PROMPT = "Two pools with two lifetimes: é."


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    directory: Path = tmp_path_factory.mktemp("checkpoint")
    vocab_size = write_tokenizer(directory)
    write_checkpoint(directory, "gemma3", vocab_size=vocab_size)
    return directory


@pytest.fixture(scope="module")
def answer(checkpoint) -> str:
    return answer_of(checkpoint)


def answer_of(checkpoint: Path) -> str:
    """The text that transformers generates for the prompt."""
    tokenizer = Tokenizer(checkpoint)
    prompt = tokenizer.encode(PROMPT)
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    generated = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0)[0]
    return tokenizer.decode([token for token in generated[len(prompt) :].tolist() if token != 2])


def generate(checkpoint: Path, *arguments, **environment):
    given = ("--checkpoint", checkpoint, "--prompt", PROMPT, "--max-new-tokens", 24)
    return swarden("generate", *given, *arguments, cwd=checkpoint.parent, **environment)


def test_text_equals_that_of_transformers_and_figures_go_to_standard_error(checkpoint, answer):
    run = generate(checkpoint, "--page-size", 4)

    assert (run.returncode, run.stdout) == (0, f"{answer}\n"), run.stderr
    assert re.search(r"pool +pages +most in use +cached +MiB", run.stderr)
    assert re.search(r"^ *full +\d+ +\d+ +\d+ ", run.stderr, re.MULTILINE)
    assert re.search(r"^ *swa +\d+ +\d+ +\d+ ", run.stderr, re.MULTILINE)


def test_json_has_the_text_the_tokens_and_the_pools(checkpoint, answer):
    run = generate(checkpoint, "--page-size", 4, "--json")

    result = json.loads(run.stdout)
    assert result["text"] == answer
    assert set(result) == {"prompt_tokens", "token_ids", "text", "finish_reason", "steps", "pools"}
    assert 0 < result["pools"]["swa"]["peak"] <= result["pools"]["swa"]["pages"]


def test_prompt_is_read_from_a_file(checkpoint, answer):
    file = checkpoint / "prompt.txt"
    file.write_text(PROMPT, encoding="utf-8")

    run = swarden("generate", "--checkpoint", checkpoint, "--prompt-file", file, "--max-new-tokens", 24, cwd=checkpoint)

    assert (run.returncode, run.stdout) == (0, f"{answer}\n"), run.stderr


@pytest.mark.parametrize("drafts", [(), ("--draft", "{checkpoint}")], ids=["prompt lookup", "draft model"])
def test_draft_tokens_change_only_the_number_of_steps(checkpoint, answer, drafts):
    given = [argument.format(checkpoint=checkpoint) for argument in drafts]
    run = generate(checkpoint, "--page-size", 4, "--draft-tokens", 3, *given, "--json")

    result = json.loads(run.stdout)
    assert result["text"] == answer
    assert result["steps"] <= 25


@pytest.mark.parametrize(
    "given",
    [(), ("--over-tcp", "--link-timeout-ms", 3000), ("--draft-tokens", 3)],
    ids=["in-process", "over-tcp", "drafts"],
)
def test_two_engines_generate_the_text_of_one(checkpoint, answer, given):
    run = generate(checkpoint, "--page-size", 4, "--disaggregated", *given, "--json")

    result = json.loads(run.stdout)
    assert (result["text"], result["finish_reason"]) == (answer, "length")
    assert sorted(result["pools"]) == ([] if "--over-tcp" in given else SIDES)


@pytest.mark.parametrize("family", ["recurrent-gemma", "bamba"])
def test_recurrent_model_generates_the_text_of_transformers(tmp_path, family):
    """The engine has drafts and the strict check.  A RecurrentGemma has no layer that reads the full pool."""
    vocab_size = write_tokenizer(tmp_path)
    write_checkpoint(tmp_path, family, vocab_size=vocab_size)

    run = generate(tmp_path, "--page-size", 4, "--draft-tokens", 2, "--json", SWARDEN_STRICT_MEM_CHECK="content")

    result = json.loads(run.stdout)
    assert (run.returncode, result["text"]) == (0, answer_of(tmp_path)), run.stderr
    assert 0 < result["pools"]["state"]["peak"] <= result["pools"]["state"]["pages"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--swa-pages", 3, "--page-size", 2], r"swarden: \S+/config\.json: swa_pages: 3 cannot hold one request"),
        (["--full-pages", 2, "--page-size", 4], "swarden: the prompt of 33 tokens cannot be answered: rejected:"),
        (["--dtype", "int8"], "swarden: dtype: 'int8' is not one of .*"),
        (["--disaggregated", "--over-tcp", "--dtype", "int8"], "swarden: dtype: 'int8' is not one of .*"),
        (["--top-p", 0], r"swarden: top_p: 0\.0; want a probability above 0 and at most 1"),
        (["--device", "tpu7"], "swarden: device: .*tpu7.*"),
        (["--draft", "there"], "swarden: --draft: there is given, but --draft-tokens is 0"),
        (["--draft", "there", "--draft-tokens", 2], "swarden: there: no such directory; .*"),
        (["--link-timeout-ms", 500], "swarden: --link-timeout-ms: is for the link between two engines"),
        (["--disaggregated", "--link-timeout-ms", 100], "swarden: link_timeout_ms: 100 with link_retry_ms 200"),
        (["--prompt-file", "x"], "swarden: prompt: give either --prompt TEXT or .*"),
    ],
)
def test_error_of_an_invalid_call_is_one_line(checkpoint, arguments, line):
    run = generate(checkpoint, *arguments)

    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert re.match(line, run.stderr), run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_error_of_a_missing_checkpoint_is_one_line(tmp_path):
    run = generate(tmp_path / "nowhere")

    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1), run.stderr
    assert "nowhere" in run.stderr


@pytest.mark.parametrize(
    ("number", "send"),
    [
        pytest.param(signal.SIGINT, os.killpg, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, os.kill, id="SIGTERM"),
        pytest.param(signal.SIGKILL, os.kill, id="SIGKILL"),
    ],
)
def test_engine_processes_end_with_the_command(checkpoint, number, send):
    """After any signal both engine processes end, without a traceback.  The first token of this answer is printed."""
    given = ("--checkpoint", checkpoint, "--prompt", "The", "--max-new-tokens", 8000)
    with running("generate", *given, "--disaggregated", "--over-tcp", cwd=checkpoint) as command:
        assert command.stdout is not None
        assert command.stdout.read(1)

        send(command.pid, number)
        _, errors = command.communicate()

        wait_until(lambda: not processes_of(command.pid))
    assert b"Traceback" not in errors
