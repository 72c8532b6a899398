"""Servers that swarden starts, and that die."""

import shlex
import signal
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import ANY

import pytest

from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.replay import Verdict, repeat
from swarden.harness.engines.server import process
from swarden.harness.engines.server.apis import Wanted, api_of, read
from swarden.harness.engines.server.client import Address, Call, Reply
from swarden.harness.engines.server.comparison import JudgedToken, compared
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.process import Connection, Server, begin_round, decoder_of, published, recorded
from tests.engine_under_test.model.checkpoints import write_checkpoint
from tests.harness.servers.some_servers import (
    BEHIND_LEARNING,
    ONE,
    free_port,
    log_at,
    mortal,
    our_server,
    started_by_hand,
)
from tests.harness.some_processes import running, swarden_process, wait_until

OPENAI, VLLM = api_of("openai"), api_of("vllm")
BODY = {"prompt": "ab", "max_tokens": 2}
NEVER = 10_000  # tokens of an answer


@pytest.fixture
def connection(tmp_path, monkeypatch):
    """A connection with this command, in a folder of its own; it is closed."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def connection(command, port=None):
        port = port or free_port()
        opened.append(Connection(Server(f"http://127.0.0.1:{port}", command.replace("PORT", str(port)))))
        return opened[-1]

    yield connection
    for started in opened:
        started.close()


def answers(url):
    return Call(Address(url)).made("POST", "/v1/completions", BODY).status


def test_server_is_started_and_ends_with_all_that_it_has_started(connection):
    started = connection(shlex.join(["sh", "-c", mortal("PORT", NEVER) + "; true"]))

    started.renew(OPENAI)
    assert answers(started.server.url) == 200
    started.close()
    assert answers(started.server.url) == 0


def test_server_without_a_flush_is_new_in_each_run_and_one_with_it_stays(connection):
    mortals = connection(mortal("PORT", NEVER))
    ours = connection(f"{sys.executable} -m swarden.harness.cli serve --model tiny-gemma3 --port PORT")
    first = {}
    for one, api in ((mortals, OPENAI), (ours, api_of("vllm"))):
        one.renew(api)
        first[api.name] = one.process
        one.renew(api)

    assert first["openai"] is not mortals.process
    assert first["vllm"] is ours.process


@pytest.mark.parametrize(("api", "is_flushed"), [(OPENAI, False), (VLLM, True)], ids=["openai", "vllm"])
def test_new_server_is_flushed_if_its_api_can(connection, api, is_flushed):
    fault = "--mutant B77 --fault pool.refuses"  # which the first flush arms
    ours = connection(f"{sys.executable} -m swarden.harness.cli serve --model tiny-gemma3 --port PORT {fault}")
    ours.renew(api)
    crowd = [Wanted([number] * 60, 12) for number in range(3, 9)]
    statuses = {reply.status for reply in ours.replies(VLLM, ServerConfig(), crowd)}

    assert (statuses != {200}) == is_flushed


def test_log_of_a_server_that_died_is_kept(connection):
    started = connection(mortal("PORT", 1))
    started.renew(OPENAI)
    answers(started.server.url)

    line, cause = started.last_words()
    started.renew(OPENAI)

    kept = started.log.with_name(f"{started.log.stem}-RuntimeError.log")
    assert (line, cause) == (f"RuntimeError: no more (its log is {kept})", "RuntimeError")
    assert kept.read_text() == "noise\nRuntimeError: no more\n"
    assert started.is_healthy


def test_error_from_before_the_round_is_not_the_cause_of_a_death(connection, tmp_path):
    died = connection("")
    died.log = tmp_path / "server.log"
    died.log.write_text("OSError: an earlier one\n")
    begin_round(died)
    with died.log.open("a") as log:
        log.write("RuntimeError: no more\n")

    assert died.last_words()[1] == "RuntimeError"


def test_server_whose_check_has_recorded_an_op_log_is_started_anew(connection):
    ours = connection(f"{sys.executable} -m swarden.harness.cli serve --model tiny-gemma3 --port PORT")
    ours.renew(VLLM)
    first = ours.process
    ours.checks.mkdir()
    (ours.checks / "law-1.oplog").touch()

    log = recorded(ours)
    ours.renew(VLLM)

    assert log == Path(".swarden/servers/law-1.oplog")
    assert ours.process is not first


def test_server_that_has_failed_is_started_anew(connection):
    ours = connection(f"{sys.executable} -m swarden.harness.cli serve --model tiny-gemma3 --port PORT")
    ours.renew(VLLM)
    first, ours.has_failed = ours.process, True
    ours.renew(VLLM)

    assert ours.process is not first
    assert not ours.has_failed


@pytest.mark.parametrize(
    ("command", "boot_s", "text"),
    [
        ("sh -c 'echo OSError: no model; exit 1'", 60, "the server ends at once: OSError: no model"),
        ("sh -c 'exit 1'", 60, "the server ends at once: it wrote nothing"),
        ("/nowhere/serve", 60, "the server ends at once: FileNotFoundError"),
        ("sleep 60", 0.5, "does not answer at http://127.0.0.1:"),
    ],
)
def test_command_that_starts_no_server_is_one_line(connection, monkeypatch, command, boot_s, text):
    monkeypatch.setattr(process, "BOOT_S", boot_s)
    with pytest.raises(UsageError, match=text) as refused:
        connection(command).renew(OPENAI)

    assert "\n" not in str(refused.value)


def test_another_server_at_the_port_is_not_taken_for_the_own_one(connection):
    with our_server() as url, pytest.raises(EngineGone, match="another server answers"):
        connection("sleep 60", port=url.rpartition(":")[2]).renew(OPENAI)


def test_server_that_never_answers_has_its_time_to_start(connection, monkeypatch):
    monkeypatch.setattr(process, "BOOT_S", 0.5)
    monkeypatch.setattr(process, "LOOK_S", 0.5)
    listen = "import socket, sys; one = socket.create_server(('127.0.0.1', int(sys.argv[1]))); one.accept()"

    with pytest.raises(EngineGone, match=r"after 0\.5 s"):
        connection(shlex.join([sys.executable, "-c", f"{listen}; __import__('time').sleep(60)", "PORT"])).renew(OPENAI)


def test_server_that_ends_leaves_no_process_behind(connection, tmp_path):
    started = connection("sh -c 'sleep 999 & echo $! > left; exit 3'")
    with pytest.raises(EngineGone, match="ends at once"):
        started.renew(OPENAI)

    started.close()

    command = Path("/proc", (tmp_path / "left").read_text().strip(), "cmdline")
    wait_until(lambda: not command.exists() or not command.read_bytes())


def test_checkpoint_judges_a_server(connection, tmp_path):
    write_checkpoint(tmp_path, "gemma3", vocab_size=97)
    config = ServerConfig(max_context_len=256)
    serve = decoder_of(tmp_path, config.max_context_len)
    same = connection(serve.restart, port=serve.url.rpartition(":")[2])
    same.renew(VLLM)
    wanted = Wanted([5, 6, 7], 8)
    [reply] = same.replies(VLLM, config, [wanted])
    told, *_ = read(VLLM, reply)

    with closing(Connection(Server(serve.url, reference=str(tmp_path)))) as judged:
        cold = judged.judge(VLLM, config, wanted, [token.id for token in told])
        wrong = judged.judge(VLLM, config, wanted, [token.id + 1 for token in told])

    assert not isinstance(cold, Reply)
    assert not isinstance(wrong, Reply)
    assert compared(told, cold, 1e-3, is_greedy=True) == JudgedToken(7, ANY, told[-1].id, told[-1].id)
    assert wrong[0].best == told[0].id


def test_reference_that_is_neither_a_server_nor_a_checkpoint_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"is neither http://HOST:PORT nor a folder with config\.json"):
        Connection(Server("http://127.0.0.1:1", reference=str(tmp_path)))


def test_server_that_cannot_be_started_again_is_gone(connection):
    with pytest.raises(EngineGone, match="does not answer; start the server again, or give --restart"):
        connection("").renew(OPENAI)


def test_worker_that_knows_no_server_names_the_option(monkeypatch):
    monkeypatch.delenv(process.VARIABLE, raising=False)
    with pytest.raises(UsageError, match="give --url"):
        published()


def test_replay_ends_with_the_run_that_ended_the_server(monkeypatch):
    port = free_port()
    with started_by_hand(port, 1):
        replays = repeat(log_at(monkeypatch, f"http://127.0.0.1:{port}", ONE, api="openai"))

    assert (replays.verdict, replays.failures, replays.runs) == (Verdict.FAILED, 1, 1)
    assert replays.fingerprints == ("ServerDied/unknown",)


def test_death_without_restart_ends_the_campaign_with_its_finding(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started_by_hand(port, BEHIND_LEARNING):
        run = swarden_process("fuzz", "--url", url, "--minutes", 3, "--seed", 1, "--max-rate", 500, cwd=tmp_path)

    assert run.returncode == 1, run.stderr
    assert "new: ServerDied/unknown" in run.stdout
    assert "does not answer; start the server again, or give --restart" in run.stdout
    assert f"{url} gets at most 64 calls at the same time, 500 a second, 150,000 in all" in run.stderr
    assert "without --restart no server is started" in run.stderr


def test_kill_of_the_command_ends_the_server_and_keeps_the_failure(tmp_path):
    """kill -9 while the finding is shrunk."""
    port = free_port()
    url, command = f"http://127.0.0.1:{port}", mortal(port, BEHIND_LEARNING)
    fuzz = ("fuzz", "--url", url, "--restart", command, "--set", "probe_len=0", "--minutes", 3, "--seed", 1)
    with running(*fuzz, "--stop-on-first", cwd=tmp_path) as fuzzing:
        wait_until(lambda: any(tmp_path.glob(".swarden/findings/*.unshrunk.oplog")))
        fuzzing.send_signal(signal.SIGKILL)
        fuzzing.communicate()
        wait_until(lambda: not answers(url))
    [found] = tmp_path.glob(".swarden/findings/*.oplog")
    again = swarden_process("replay", found, "--url", url, "--restart", command, "--repeat", 1, cwd=tmp_path)

    assert "found: ServerDied/RuntimeError" in again.stdout, again.stdout


def test_death_is_found_shrunk_and_replayed_with_restart(tmp_path):
    port = free_port()
    url, command = f"http://127.0.0.1:{port}", mortal(port, BEHIND_LEARNING)
    run = swarden_process(
        "fuzz", "--url", url, "--restart", command, "--set", "probe_len=0", "--runs", 6, "--seed", 1,
        "--stop-on-first", "--shrink-seconds", 5, cwd=tmp_path,
    )  # fmt: skip
    [found] = tmp_path.glob(".swarden/findings/*.oplog")
    again = swarden_process("replay", found, "--url", url, "--restart", command, "--repeat", 2, cwd=tmp_path)

    assert (run.returncode, again.returncode) == (1, 1), run.stderr
    assert f"its log is .swarden/servers/127.0.0.1-{port}-RuntimeError.log" in run.stdout
    assert f"FAILED {found}: failed 2 of 2 runs" in again.stdout
