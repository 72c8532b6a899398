"""A prefill engine and a decode engine under test, with a link that tests can tap."""

from collections.abc import Sequence
from dataclasses import replace

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.messages import Message, PageData
from swarden.engine_under_test.pair import InProcessLink
from swarden.engine_under_test.ports import Link, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.backing import FakeBacking
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.own.faults import FAULTS
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.builders import HYBRID, MOST_STEPS, EventLog, Received, Serving, flush_frees_all

SIDES = ("prefill", "decode")
LONG, SHORT, OTHER = list(range(100, 137)), list(range(200, 205)), list(range(300, 317))
PROMPTS = [OTHER[:9], LONG, SHORT, [*LONG[:22], *OTHER], LONG, OTHER[:1]]


class Tap:
    """One end of a link that records the messages sent, and drops the next one of each kind in `dropping`, or all.

    `lag_ms` is what it reports of the peer's engine.
    """

    def __init__(self, steady: Link) -> None:
        self.sent: list[Message] = []
        self.dropping: list[type[Message]] = []
        self.is_cut = False
        self.lag_ms = 0
        self.rejected: list[str] = []
        self.receive = steady.receive
        self._steady = steady

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if type(message) in self.dropping:
            self.dropping.remove(type(message))
        elif not self.is_cut:
            self._steady.send(message)

    def reject(self, detail: str) -> None:
        self.rejected.append(detail)
        self._steady.reject(detail)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    def kinds(self, transfer_id: int = 1) -> list[type[Message]]:
        """The types of the messages about a transfer, in order."""
        return [type(message) for message in self.sent if message.transfer_id == transfer_id]

    def pages(self, transfer_id: int = 1) -> list[PageData]:
        """The page data of a transfer, in order."""
        return [page for page in self.sent if isinstance(page, PageData) and page.transfer_id == transfer_id]


class Sides:
    """A prefill engine and a decode engine with fakes behind their ports, one clock and one fault plan.

    The id of a request is the same on both sides, and is the id of its transfer.
    """

    def __init__(self, config: EngineConfig = HYBRID, *, decode_config: EngineConfig | None = None) -> None:
        self.config = config
        self.clock = FakeClock()
        self.faults = FaultPlan(FAULTS)
        self.taps = dict(zip(SIDES, map(Tap, InProcessLink.pair()), strict=True))
        self.logs = {side: EventLog() for side in SIDES}
        self.received: dict[str, dict[int, Received]] = {side: {} for side in SIDES}
        self._num_transfers = 0
        configs = {"prefill": config, "decode": decode_config or config}
        self.engines: dict[str, Engine] = {
            side: create_engine(replace(configs[side], role=side), ports=self._ports(side)) for side in SIDES
        }
        self.prefill, self.decode = self.engines.values()

    def _ports(self, side: str) -> Ports:
        forward = UnsteadyForward(FakeForward(TagModel()), self.faults)
        return Ports(forward, self.clock, self.logs[side], FakeBacking(self.faults), link=self.taps[side])

    @property
    def has_work(self) -> bool:
        return self.prefill.has_work or self.decode.has_work

    def submit(self, prompt: Sequence[int], *, max_new_tokens: int = 4, to: Sequence[str] = SIDES, **how) -> int:
        """Submit a new request to both sides, or to one; `submit_late` submits it to the other."""
        self._num_transfers += 1
        for side in to:
            self.submit_late(self._num_transfers, prompt, SamplingParams(max_new_tokens), to=side, **how)
        return self._num_transfers

    def submit_late(self, transfer_id: int, prompt: Sequence[int], sampling: SamplingParams, *, to: str, **how) -> None:
        request_id = self.engines[to].submit_transfer(transfer_id, prompt, sampling, **how)
        assert request_id == transfer_id, f"transfer {transfer_id} is request {request_id} on the {to} side"
        self.received[to][transfer_id] = Received()

    def step(self, *sides: str) -> None:
        """One step of each named side, in order."""
        for side in sides:
            for output in self.engines[side].step():
                received = self.received[side][output.request_id]
                received.tokens += output.token_ids
                received.reason = output.finish_reason
                received.cached_tokens = output.cached_tokens
                received.num_retractions = output.num_retractions

    def steps(self, count: int, *, ms_per_step: int = 0) -> None:
        for _ in range(count):
            self.step(*SIDES)
            self.clock.advance(ms_per_step)

    def run(self, *, ms_per_step: int = 0) -> None:
        """Step until neither side has work."""
        for _ in range(MOST_STEPS):
            if not self.has_work:
                return
            self.steps(1, ms_per_step=ms_per_step)
        raise AssertionError(f"a side still has work after {MOST_STEPS} steps: {self.received}")

    def cut(self) -> None:
        """Drop every message from now on."""
        for tap in self.taps.values():
            tap.is_cut = True

    def reasons(self, transfer_id: int = 1) -> dict[str, str | None]:
        """The finish reason of a request, by side."""
        return {side: self.received[side][transfer_id].reason for side in SIDES}

    def outputs(self) -> list[list[int]]:
        return [received.tokens for received in self.received["decode"].values()]

    def expected(self, *prompts: Sequence[int], max_new_tokens: int = 4) -> list[list[int]]:
        """The outputs of one engine that serves the prompts one after the other."""
        serving = Serving(self.config)
        return [serving.serve(prompt, max_new_tokens=max_new_tokens).tokens for prompt in prompts]

    def flush_frees_all(self) -> bool:
        return all(map(flush_frees_all, self.engines.values()))
