"""A prefill engine and a decode engine under test, their link, and prompts for them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.engine import Engine, create_engine
from engine_under_test.messages import Message
from engine_under_test.ports import Link, Ports
from engine_under_test.sampling import SamplingParams
from fakes.backing import FakeBacking
from fakes.catalog import FAULTS
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from fakes.unsteady import UnsteadyForward
from harness.core.faults import FaultPlan
from harness.engines.own.adapter import ReferenceModel
from tests.engine_under_test.builders import (
    FULL_ONLY,
    HYBRID,
    MOST_STEPS,
    SWA_ONLY,
    UNSHARED,
    Heard,
    Received,
    Serving,
)

SIDES = ("prefill", "decode")
LONG, SHORT, OTHER = list(range(100, 137)), list(range(200, 205)), list(range(300, 317))
PROMPTS = [OTHER[:9], LONG, SHORT, [*LONG[:22], *OTHER], LONG, OTHER[:1]]
ALL_POOLS = pytest.mark.parametrize(
    "config", [HYBRID, FULL_ONLY, SWA_ONLY, UNSHARED], ids=["hybrid", "full only", "swa only", "no sharing"]
)


class Tap:
    """One end of another link: it keeps what is sent, loses the next message of each kind in `losing`, or all."""

    def __init__(self, steady: Link) -> None:
        self.sent: list[Message] = []
        self.losing: list[type[Message]] = []
        self.is_cut = False
        self.receive = steady.receive
        self._steady = steady

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if type(message) in self.losing:
            self.losing.remove(type(message))
        elif not self.is_cut:
            self._steady.send(message)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    def kinds(self, room: int = 1) -> list[str]:
        """What was said of a room, in order."""
        return [type(message).__name__ for message in self.sent if message.room == room]


class Sides:
    """A prefill engine and a decode engine, linked, with stand-ins behind their ports; each has its own clients.

    A request has the same number everywhere: it is its room, and its id on either side.  The sides share a plan of
    faults.
    """

    def __init__(self, config: EngineConfig = HYBRID, *, decode_config: EngineConfig | None = None) -> None:
        self.config = config
        self.clock = FakeClock()
        self.faults = FaultPlan(FAULTS)
        self.taps = dict(zip(SIDES, map(Tap, InProcessLink.pair()), strict=True))
        self.heard = {side: Heard() for side in SIDES}
        self.received: dict[str, dict[int, Received]] = {side: {} for side in SIDES}
        self._num_rooms = 0
        configs = {"prefill": config, "decode": decode_config or config}
        self.engines: dict[str, Engine] = {
            side: create_engine(replace(configs[side], role=side), ports=self._ports(side)) for side in SIDES
        }
        self.prefill, self.decode = self.engines.values()

    def _ports(self, side: str) -> Ports:
        forward = UnsteadyForward(FakeForward(ReferenceModel()), self.faults)
        return Ports(forward, self.clock, self.heard[side], FakeBacking(self.faults), link=self.taps[side])

    @property
    def has_work(self) -> bool:
        return self.prefill.has_work or self.decode.has_work

    def submit(self, prompt: Sequence[int], *, max_new_tokens: int = 4, to: Sequence[str] = SIDES, **how) -> int:
        """A new request to both sides, or to one; `submit_late` is for the other."""
        self._num_rooms += 1
        for side in to:
            self.submit_late(self._num_rooms, prompt, SamplingParams(max_new_tokens), to=side, **how)
        return self._num_rooms

    def submit_late(self, room: int, prompt: Sequence[int], sampling: SamplingParams, *, to: str, **how) -> None:
        request_id = self.engines[to].submit_to_room(room, prompt, sampling, **how)
        assert request_id == room, f"room {room} is request {request_id} on the {to} side"
        self.received[to][room] = Received()

    def step(self, *sides: str) -> None:
        """A step of each of them, in order."""
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
        """Step until nothing is left to do on either side."""
        for _ in range(MOST_STEPS):
            if not self.has_work:
                return
            self.steps(1, ms_per_step=ms_per_step)
        raise AssertionError(f"still at work after {MOST_STEPS} steps: {self.received}")

    def cut(self) -> None:
        """From now on nothing gets through."""
        for tap in self.taps.values():
            tap.is_cut = True

    def reasons(self, room: int = 1) -> dict[str, str | None]:
        """Why a request ended, by side."""
        return {side: self.received[side][room].reason for side in SIDES}

    def outputs(self) -> list[list[int]]:
        return [received.tokens for received in self.received["decode"].values()]

    def expected(self, *prompts: Sequence[int], max_new_tokens: int = 4) -> list[list[int]]:
        """The outputs of one engine that serves all of them alone."""
        serving = Serving(self.config)
        return [serving.serve(prompt, max_new_tokens=max_new_tokens).tokens for prompt in prompts]

    def emptied(self) -> bool:
        return all(map(is_emptied, self.engines.values()))


def is_emptied(engine: Engine) -> bool:
    """Flush; is every page of every pool and every row free then, and nothing behind a fence or a lock?"""
    engine.flush()
    books = (*engine.memory.ledgers.ledgers, engine.memory.table.rows)
    return all(book.num_free == book.capacity for book in books) and not engine.scheduler.custody.departures.waiting
