"""Two engines in child processes answer as one engine does, and survive the death of either process."""

import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.connection import ConnectionEnd
from swarden.engine_under_test.disaggregation.silence import heartbeat_ms
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.engine_process import EngineSpec, Occupancy, SubmitCommand
from swarden.engine_under_test.errors import CheckpointError, EngineError
from swarden.engine_under_test.ports import ForwardBatch, Ports
from swarden.engine_under_test.processes import SIDES, ProcessPair
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.disaggregation.strangers import MAX_BEFORE_PROOF, forges
from tests.harness.some_processes import WARM

CONFIG = EngineConfig(
    page_size=4,
    full_pages=96,
    swa_pages=24,
    sliding_window=9,
    max_running_requests=4,
    max_context_len=256,
    chunk_len=16,
    link_retry_ms=50,
    link_timeout_ms=60_000,
)
PROMPTS = [list(range(first, first + length)) for first, length in enumerate((37, 5, 120, 64, 16, 90, 33, 8))]
SAMPLING = SamplingParams(12)
DEADLY = 666
TIMEOUT_S = 600.0  # for a pair that is stuck
TIMEOUT_MS = 2000  # for a peer, where one is awaited
ENDED = "2 prefill processes died with it"
HANGS = "the decode process has sent nothing for N ms"


def fake_ports() -> Ports:
    return Ports(FakeForward(TagModel()))


class DeadlyForward(FakeForward):
    """A forward that kills its process when it computes one certain token."""

    def launch(self, batch: ForwardBatch) -> None:
        if any(DEADLY in entry.tokens for entry in batch.entries):
            os._exit(1)
        super().launch(batch)


class SlowForward(FakeForward):
    """A forward whose passes take longer than TIMEOUT_MS."""

    def launch(self, batch: ForwardBatch) -> None:
        Event().wait(1.1 * TIMEOUT_MS / 1000)
        super().launch(batch)


def slow_ports() -> Ports:
    return Ports(SlowForward(TagModel()))


def deadly_ports() -> Ports:
    return Ports(DeadlyForward(TagModel()))


def ports_without(obstacle: Path) -> Ports:
    if obstacle.exists():
        raise EngineError("there is an obstacle")
    return fake_ports()


def failing_ports() -> Ports:
    raise OSError("no device")


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return [answer.token_ids for answer in create_engine(CONFIG, ports=fake_ports()).generate(PROMPTS, SAMPLING)]


@pytest.fixture(scope="module")
def pair():
    pair = ProcessPair(EngineSpec(CONFIG, ports=fake_ports), WARM)
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def impatient():
    """A pair that replaces a process that has sent nothing for two seconds."""
    pair = ProcessPair(EngineSpec(replace(CONFIG, link_timeout_ms=TIMEOUT_MS), ports=fake_ports), WARM)
    yield pair
    pair.close()


def is_idle(pools: Mapping[str, Occupancy]) -> bool:
    return all(pool.is_idle for pool in pools.values())


def step_until_done(pair: ProcessPair) -> None:
    """Step until every request has ended, or the timeout has passed."""
    until = monotonic() + TIMEOUT_S
    while pair.has_work and monotonic() < until:
        pair.step()


def answers(pair: ProcessPair) -> list[list[int]]:
    return [generation.token_ids for generation in pair.generate(PROMPTS, SAMPLING)]


def test_process_pair_outputs_equal_those_of_one_engine(pair, expected):
    assert answers(pair) == expected


def test_death_of_the_decode_process_ends_its_requests_with_that_reason(pair, expected):
    transfer_ids = [pair.submit(prompt, SAMPLING) for prompt in PROMPTS]
    os.kill(pair.decode.pid, signal.SIGKILL)

    ends = Counter[str | None]()
    while pair.has_work:
        ends.update(output.finish_reason for output in pair.step() if output.finish_reason is not None)

    assert ends.total() == len(transfer_ids)
    assert ends.keys() <= {"the decode process has died", "length"}
    assert ends["the decode process has died"]
    assert answers(pair) == expected


def test_request_whose_submission_finds_the_decode_process_dead_is_served(pair, expected):
    pid, transfer_ids = pair.decode.pid, [0]
    os.kill(pid, signal.SIGKILL)
    while pair.decode.pid == pid:
        transfer_ids.append(pair.submit(PROMPTS[1], SAMPLING))

    tokens, reasons = list[int](), dict[int, str | None]()
    while pair.has_work:
        for output in pair.step():
            reasons[output.request_id] = output.finish_reason
            tokens += output.token_ids if output.request_id == transfer_ids[-1] else ()

    assert (tokens, reasons[transfer_ids[-1]]) == (expected[1], "length")


def test_request_that_ended_before_the_decode_process_died_ends_once(pair, expected):
    """A later `submit` has received the end of the request, and `step` has not returned it yet."""
    first = pair.submit(PROMPTS[1], SAMPLING)
    while not any(output.finish_reason for output in pair.undelivered):
        pair._receive()
    second = pair.submit(PROMPTS[0], SAMPLING)
    os.kill(pair.decode.pid, signal.SIGKILL)
    third = pair.submit(PROMPTS[3], SAMPLING)

    ends = Counter[int]()
    while pair.has_work:
        ends.update(output.request_id for output in pair.step() if output.finish_reason is not None)

    assert ends == {first: 1, second: 1, third: 1}
    assert answers(pair) == expected


def test_argument_that_is_no_integer_raises_before_it_is_sent(pair, expected):
    with pytest.raises(TypeError):
        pair.submit(PROMPTS[0], SAMPLING, priority="high")

    assert answers(pair) == expected


def test_return_logits_raises_before_it_is_sent(pair, expected):
    with pytest.raises(EngineError, match=r"^return_logits: "):
        pair.submit(PROMPTS[0], SamplingParams(4, return_logits=True))

    assert answers(pair) == expected


def test_pass_longer_than_the_timeout_fails_no_request(expected):
    """Each pass takes more than the timeout, in both processes."""
    config = replace(CONFIG, link_timeout_ms=TIMEOUT_MS, chunk_len=None, max_running_requests=8)
    with closing(ProcessPair(EngineSpec(config, ports=slow_ports), WARM)) as pair:
        generations = pair.generate(PROMPTS[:2], SamplingParams(2))

        assert [generation.token_ids for generation in generations] == [tokens[:2] for tokens in expected[:2]]
        assert [generation.finish_reason for generation in generations] == ["length"] * 2


@pytest.mark.parametrize("attack", ["a stranger on the port", "a stranger while the prefill process is restarted"])
def test_stranger_harms_no_request_and_is_counted(pair, expected, attack):
    """The forged frames end, invite and feed every transfer; the port stays with the client."""
    before = pair.refused()["prefill"].total()
    transfer_ids = [pair.submit(prompt, SAMPLING) for prompt in PROMPTS]
    if "restarted" in attack:
        os.kill(pair.prefill.pid, signal.SIGKILL)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(pair.address)
    num_read, tokens = list[int](), {transfer_id: list[int]() for transfer_id in transfer_ids}

    def intrude() -> None:
        with socket.create_connection(pair.address) as stream:
            num_read.append(forges(ConnectionEnd.CONNECTING)(stream))

    stranger = Thread(target=intrude)
    stranger.start()
    while pair.has_work:
        for output in pair.step():
            tokens[output.request_id] += output.token_ids
    stranger.join()

    assert list(tokens.values()) == expected
    assert num_read[0] <= MAX_BEFORE_PROOF
    assert pair.refused()["prefill"].total() > before or "restarted" in attack


def test_secret_is_not_on_a_command_line_or_in_the_environment(expected):
    """The secret is what both processes were started with, each with a command line and an environment of its own."""
    with closing(ProcessPair(EngineSpec(CONFIG, ports=fake_ports))) as pair:
        secret = pair.prefill._arguments[3]
        for side in (pair.prefill, pair.decode):
            for file in ("cmdline", "environ"):
                public = Path(f"/proc/{side.pid}/{file}").read_bytes()
                assert secret not in public
                assert secret.hex().encode() not in public
        assert answers(pair) == expected


def test_forked_processes_block_the_signal_of_ctrl_c(pair):
    """Only the client handles it."""
    for side in (pair.prefill, pair.decode):
        [blocked] = re.findall(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{side.pid}/status").read_text(), re.MULTILINE)
        assert int(blocked, 16) & 1 << signal.SIGINT - 1


def test_error_of_the_engine_in_the_process_is_raised_in_the_client(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        ProcessPair(EngineSpec(CONFIG, str(tmp_path)), WARM)


def test_aborted_request_ends_with_abort(pair, expected):
    pair.abort(pair.submit(PROMPTS[2], SamplingParams(100)))

    ends = []
    while pair.has_work:
        ends += [output.finish_reason for output in pair.step() if output.finish_reason is not None]

    assert ends == ["abort"]
    assert answers(pair) == expected


def test_request_that_kills_two_prefill_processes_is_ended_and_others_are_served(expected):
    """At most four requests run at a time, and the processes that died have run others beside the deadly one."""
    with closing(ProcessPair(EngineSpec(replace(CONFIG, max_forward_retries=1), ports=deadly_ports), WARM)) as pair:
        generations = pair.generate([*PROMPTS[:2], [DEADLY] * 20, *PROMPTS[2:]], SAMPLING)

    assert [generation.finish_reason for generation in generations] == ["length"] * 2 + [ENDED] + ["length"] * 6
    assert [generation.token_ids for generation in generations] == [*expected[:2], [], *expected[2:]]


def test_client_that_sends_and_does_not_read_does_not_block_the_engines(expected):
    """Both the commands and the outputs are more than a pipe holds."""
    pair, many = ProcessPair(EngineSpec(CONFIG, ports=fake_ports), WARM), 400
    tokens: dict[int, list[int]] = {transfer_id: [] for transfer_id in range(1, many + 1)}
    for transfer_id in tokens:
        for side in (pair.prefill, pair.decode):
            side.send(SubmitCommand(transfer_id, PROMPTS[transfer_id % 8], SAMPLING, 0, 0))
    num_ended = 0
    while num_ended < many:
        for output in pair.decode.receive() or ():
            tokens[output.request_id] += output.token_ids
            num_ended += output.finish_reason is not None
    pair.close()

    assert tokens == {transfer_id: expected[transfer_id % 8] for transfer_id in tokens}


def test_requests_end_with_the_reason_for_which_no_new_process_has_an_engine(tmp_path, expected):
    """Later requests are served again, once the reason is gone."""
    obstacle = tmp_path / "obstacle"
    with closing(ProcessPair(EngineSpec(CONFIG, ports=partial(ports_without, obstacle)), WARM)) as pair:
        obstacle.touch()
        transfer_ids = [pair.submit(prompt, SamplingParams(100)) for prompt in PROMPTS]
        os.kill(pair.prefill.pid, signal.SIGKILL)
        ends = Counter[str | None]()
        while pair.has_work:
            ends.update(output.finish_reason for output in pair.step() if output.finish_reason is not None)
        obstacle.unlink()

        assert ends.total() == len(transfer_ids)
        assert ends.keys() <= {"the prefill process has no engine: there is an obstacle", "length"}
        assert ends["the prefill process has no engine: there is an obstacle"]
        assert any(answers(pair) == expected for _ in range(5))  # a process that started before may fail too


def test_process_that_dies_during_its_start_raises():
    with pytest.raises(EngineError, match=r"^the (prefill|decode) process died during its start"):
        ProcessPair(EngineSpec(CONFIG, ports=failing_ports), WARM)


# --- a pair with a short timeout; behind the others, because its idle processes use CPU time


@pytest.mark.parametrize(
    ("victim", "reasons"),
    [pytest.param("prefill", {"length"}, id="prefill"), pytest.param("decode", {"length", HANGS}, id="decode")],
)
def test_stopped_process_is_replaced_after_the_timeout(victim, reasons, impatient, expected):
    """SIGSTOP: requests of the decode process end with a reason, those of the prefill process are served again."""
    pair = impatient
    tokens: dict[int, list[int]] = {pair.submit(prompt, SAMPLING): [] for prompt in PROMPTS}
    os.kill({"prefill": pair.prefill, "decode": pair.decode}[victim].pid, signal.SIGSTOP)
    ends, began = Counter[str](), monotonic()
    while pair.has_work:
        for output in pair.step():
            tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                ends[re.sub(r"\d+ ms", "N ms", output.finish_reason)] += 1
                ended_ms = 1000 * (monotonic() - began)

    assert ends.keys() <= reasons
    assert ends.total() == len(PROMPTS)
    if victim == "decode":
        # the silence began with the last heartbeat before the signal
        assert TIMEOUT_MS - heartbeat_ms(TIMEOUT_MS) <= ended_ms
    assert answers(pair) == expected


@pytest.mark.parametrize(("victim", "other"), [SIDES, SIDES[::-1]])
def test_pages_held_for_a_dead_process_are_freed(victim, other, impatient):
    pair, until = impatient, monotonic() + TIMEOUT_S
    while (was_idle := is_idle(pair.occupancy()[other])) and monotonic() < until:
        pair.submit(PROMPTS[2], SamplingParams(100))
    os.kill({"prefill": pair.prefill, "decode": pair.decode}[victim].pid, signal.SIGKILL)

    step_until_done(pair)
    until = monotonic() + TIMEOUT_S
    while not all(map(is_idle, pair.occupancy().values())) and monotonic() < until:
        pair.step()

    are_idle = {role: is_idle(pools) for role, pools in pair.occupancy().items()}
    assert (was_idle, are_idle) == (False, dict.fromkeys(SIDES, True))
