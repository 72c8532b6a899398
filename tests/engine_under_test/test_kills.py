"""Either process of a pair is killed at random moments: each request finishes with the right tokens, or has a reason.

SWARDEN_KILLS is the number of moments.  With 100 the test takes ten minutes, because each kill starts a process; the
log (--log-cli-level=INFO) has the number of requests by the reason of their end.
"""

import os
import signal
from collections import Counter
from contextlib import closing
from logging import getLogger
from random import Random
from threading import Event
from time import monotonic

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine_process import EngineSpec
from swarden.engine_under_test.ports import ForwardBatch, Ports
from swarden.engine_under_test.processes import SIDES, ProcessPair
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel

KILLS = int(os.environ.get("SWARDEN_KILLS", "2"))
CONFIG = EngineConfig(
    page_size=4,
    full_pages=400,
    swa_pages=48,
    sliding_window=9,
    max_running_requests=4,
    max_context_len=512,
    chunk_len=16,
    link_retry_ms=100,
    link_timeout_ms=3000,
)
PROMPTS = [list(range(first, first + 100)) for first in range(20)]
SAMPLING = SamplingParams(10)
PASS_S = 0.01
MOST_S = 1200.0  # for a pair that is stuck
DIED = "the decode process has died"


class SteadyForward(FakeForward):
    """A forward with passes of at least PASS_S, so that all requests together take some seconds."""

    def launch(self, batch: ForwardBatch) -> None:
        Event().wait(PASS_S)
        super().launch(batch)


def steady_ports() -> Ports:
    return Ports(SteadyForward(TagModel()))


def serve(
    pair: ProcessPair, victim: int | None = None, kill_s: float = 0.0
) -> tuple[list[str | None], list[list[int]]]:
    """Serve all prompts; why each ended, None if it did not, and its tokens.  The victim is killed after `kill_s`."""
    began, ids = monotonic(), [pair.submit(prompt, SAMPLING) for prompt in PROMPTS]
    reasons, tokens = dict[int, str](), {number: list[int]() for number in ids}
    while pair.has_work and monotonic() < began + MOST_S:
        if victim is not None and monotonic() >= began + kill_s:
            os.kill(victim, signal.SIGKILL)
            victim = None
        for output in pair.step():
            tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                reasons[output.request_id] = output.finish_reason
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    return [reasons.get(number) for number in ids], list(tokens.values())


def test_requests_survive_the_death_of_the_prefill_process_and_end_with_that_of_the_decode_process():
    """The moments are random, from the submission to the end of a run without a death."""
    chance, ends, wrong = Random(0), Counter[tuple[str, str | None]](), 0
    with closing(ProcessPair(EngineSpec(CONFIG, ports=steady_ports))) as pair:
        began = monotonic()
        expected, healthy_s = serve(pair)[1], monotonic() - began
        for role in SIDES * (KILLS // 2):
            side = pair.prefill if role == "prefill" else pair.decode
            pid = side.pid
            reasons, tokens = serve(pair, pid, chance.random() * healthy_s)
            ends.update((role, reason) for reason in reasons)
            wrong += sum(
                got != want for got, want, reason in zip(tokens, expected, reasons, strict=True) if reason == "length"
            )
            while side.pid == pid or not side.is_started:
                pair.step()
    getLogger(__name__).info("%d moments within %.1f s: %s", KILLS, healthy_s, dict(ends))
    assert ends["prefill", "length"] == KILLS // 2 * len(PROMPTS)
    assert ends["decode", "length"] + ends["decode", DIED] == KILLS // 2 * len(PROMPTS)
    assert wrong == 0
