"""Two engines that serve as one: one computes prompts, the other decodes, and a link is between them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.engine import PAUSED, Engine, create_engine
from engine_under_test.errors import EngineError
from engine_under_test.ports import Ports
from engine_under_test.request import Generation, Output, serve
from engine_under_test.sampling import SamplingParams


class Pair:
    """A prefill engine and a decode engine; every request has a room in both.

    What a client hears comes from the decode side; logits of a prompt come from where it is computed.
    """

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill = prefill
        self.decode = decode
        self._num_rooms = 0
        self._room_of: dict[tuple[Engine, int], int] = {}

    @property
    def has_work(self) -> bool:
        return self.prefill.has_work or self.decode.has_work

    def submit(
        self, token_ids: Sequence[int], sampling: SamplingParams, *, namespace: int = 0, priority: int = 0
    ) -> int:
        """Queue a request on both sides; its room, by which outputs are told apart."""
        self._num_rooms += 1
        for engine in (self.prefill, self.decode):
            request = engine.submit_to_room(
                self._num_rooms, token_ids, sampling, namespace=namespace, priority=priority
            )
            self._room_of[engine, request] = self._num_rooms
        return self._num_rooms

    def abort(self, room: int) -> None:
        """End a request on the side that clients hear; the other side hears of it from there."""
        for (engine, request), its_room in self._room_of.items():
            if its_room == room and engine is self.decode:
                engine.abort(request)

    def step(self) -> list[Output]:
        """A step of each side; what clients get to hear, with rooms in the place of request ids."""
        heard = [
            output._replace(token_ids=(), finish_reason=None) for output in self._step(self.prefill) if output.logits
        ]
        return [*heard, *self._step(self.decode)]

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts until the last has ended, and nothing of them is held on either side; what came of each.

        Raises EngineError while either engine is paused.
        """
        for engine in (self.prefill, self.decode):
            if engine.scheduler.is_paused:
                raise EngineError(f"the {engine.config.role} side is {PAUSED}")
        return serve(self, prompts, sampling)

    def _step(self, engine: Engine) -> list[Output]:
        outputs = []
        for output in engine.step():
            room = self._room_of[engine, output.request_id]
            if output.finish_reason is not None:
                del self._room_of[engine, output.request_id]
            outputs.append(output._replace(request_id=room))
        return outputs


def create_pair(
    config: EngineConfig,
    *,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    ports: tuple[Ports, Ports] = (Ports(), Ports()),
) -> Pair:
    """Two engines of one configuration with empty pools, linked within this process unless they are given links.

    `ports` are those of the prefill side and of the decode side.  Raises as `create_engine` does.
    """
    engines = []
    for role, own, link in zip(("prefill", "decode"), ports, InProcessLink.pair(), strict=True):
        linked = own if own.link is not None else replace(own, link=link)
        engines.append(
            create_engine(config.for_side(role), checkpoint=checkpoint, device=device, dtype=dtype, ports=linked)
        )
    return Pair(*engines)
