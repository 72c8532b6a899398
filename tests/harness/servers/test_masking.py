"""Secrets in the commands and the answers of servers."""

import pytest

from swarden.harness.core.replay import run_log
from swarden.harness.engines.server.masking import Secrets, masked
from swarden.harness.report.story import failure_lines
from tests.harness.servers.some_servers import ONE, log_at, server_with

SECRET = "hun7er2/Q=9"


@pytest.mark.parametrize(
    "command",
    [
        *(f"srv --{name} X" for name in ("apiKey", "passwd", "pwd", "credentials", "cookie", "hftoken", "sas")),
        *(
            f"srv {option}"
            for option in ("-k X", "-hft X", "-u me:X", "--user me:X", "--api-key -XY", "--auth-token=X")
        ),
        *(f"sh -c 'exec srv {word}'" for word in ("-k X", "--license X", "http://h/?api_key=X", "http://me:X@h/")),
        *("docker run -eK=X image", "env K=X srv", "sshpass -p X srv", "srv --key 123456 --password X"),
        *(f"sh -c '{line}'" for line in ("srv --token X --foo=1", 'sh -c "srv --token X"', 'srv --api-key X "open')),
        *("run --env=T_TOKEN=X --env T_TOKEN=X", "srun --export=ALL,T_TOKEN=X srv", "srv --api-key X X"),
        "run --command='srv --api-key X' --header='Y: X' -H 'Authorization: X'",
        *('srv \'{"password": "X"}\'', 'srv \'{"a":{"token":"X"}}\'', "curl 'Authorization: Bearer X'"),
        *("srv hf_Xaaaaaaaaaaaaaaaaaaaa", "srv sk-Xaaaaaaaaaaaaaa", "srv aXa3bYc4dZe5fWg6h", "srv AKIAX12345678"),
    ],
)
def test_secret_of_a_command_is_masked(command):
    shown = masked(f"{command} --port 8000")

    assert shown.endswith(" --port 8000")
    assert "X" not in shown
    assert "***" in shown
    assert "123456" not in shown


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'cd /srv && exec serve --port 8000'",
        "serve kv_unified=True swa_full=False n_ctx=4096 dtype=bfloat16 model=Qwen3-0.6B",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --kv-cache-dtype fp8_e4m3 --max-num-batched-tokens 8192 --tokenizer M",
        "env CUDA_VISIBLE_DEVICES=0,1 VLLM_ATTENTION_BACKEND=FLASH_ATTN HF_HOME=/data/hf python -u -m v --keyfile k",
        "llama-server -m /models/5f0b02c75b57c5855da9ae460ce51323ea669d8a/Qwen3-Q8_0.gguf -ngl 99 --top-k 40",
        "docker run -p 8000:8000 --user 1000:1000 vllm/vllm-openai:v0.10.0 --num-key-value-heads 8 --seed 12345678901",
    ],
)
def test_command_can_be_run_again_where_it_has_no_secret(command):
    assert masked(command) == command


@pytest.mark.parametrize("scheme", ["{}", "Bearer {}", "Basic bWU6aHVuN2VyMi9RPTk="])
@pytest.mark.parametrize(
    "echo", ["{}", "you sent {}!", "cut at its end: {:.7}", "%22hun7er2%2FQ%3D9%22", "aHVuN2VyMi9RPTk="]
)
def test_known_secret_is_masked_in_each_form(scheme, echo):
    shown = Secrets([scheme.format(SECRET)]).masked(echo.format(SECRET))

    assert "***" in shown
    assert "hun7" not in shown
    assert "aHVu" not in shown


def test_header_that_a_server_repeats_is_shown_nowhere(monkeypatch):
    def repeats(handler):
        handler.send_response(500)
        handler.end_headers()
        handler.wfile.write(f"{handler.headers['X-Key']} for {SECRET}".encode())

    with server_with(repeats) as url:
        log = log_at(monkeypatch, url, ONE, headers={"X-Key": f"Bearer {SECRET}"})
        failure = run_log(log).failure

    assert failure is not None
    assert any("status 500: *** for ***" in str(line) for line in failure_lines(failure))
