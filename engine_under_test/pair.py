"""A prefill engine and a decode engine in one process, with a link: a message arrives as soon as it is sent."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import PAUSED, Engine, create_engine
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.messages import Message, PageData
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Generation, Output, serve
from swarden.engine_under_test.sampling import SamplingParams


class Pair:
    """A prefill engine and a decode engine; every request has a transfer between them.

    Output tokens come from the decode engine, and the logits of a prompt from the prefill engine.
    """

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill = prefill
        self.decode = decode
        self.undelivered: list[Output] = []
        self._num_transfers = 0
        self._transfer_ids: dict[tuple[Engine, int], int] = {}

    @property
    def has_work(self) -> bool:
        return self.prefill.has_work or self.decode.has_work or bool(self.undelivered)

    def submit(
        self, token_ids: Sequence[int], sampling: SamplingParams, *, namespace: int = 0, priority: int = 0
    ) -> int:
        """Queue a request on both sides; returns the id of its transfer, which its outputs carry."""
        self._num_transfers += 1
        for engine in (self.prefill, self.decode):
            request = engine.submit_transfer(
                self._num_transfers, token_ids, sampling, namespace=namespace, priority=priority
            )
            self._transfer_ids[engine, request] = self._num_transfers
        return self._num_transfers

    def abort(self, transfer_id: int) -> None:
        """Abort a request on the decode side, which closes its transfer."""
        for (engine, request), its_transfer_id in self._transfer_ids.items():
            if its_transfer_id == transfer_id and engine is self.decode:
                engine.abort(request)

    def step(self) -> list[Output]:
        """Step both engines; returns the outputs for clients, with transfer ids instead of request ids."""
        undelivered, self.undelivered = self.undelivered, []
        logits = [
            output._replace(token_ids=(), finish_reason=None) for output in self._step(self.prefill) if output.logits
        ]
        return [*undelivered, *logits, *self._step(self.decode)]

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts until neither engine has work; one generation per prompt, in order.

        Outputs of other requests are delivered by the next step.  Raises EngineError while either engine is paused.
        """
        for engine in (self.prefill, self.decode):
            if engine.scheduler.is_paused:
                raise EngineError(f"the {engine.config.role} side is {PAUSED}")
        return serve(self, prompts, sampling)

    def _step(self, engine: Engine) -> list[Output]:
        outputs = []
        for output in engine.step():
            transfer_id = self._transfer_ids[engine, output.request_id]
            if output.finish_reason is not None:
                del self._transfer_ids[engine, output.request_id]
            outputs.append(output._replace(request_id=transfer_id))
        return outputs


def create_pair(
    config: EngineConfig,
    *,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    ports: tuple[Ports, Ports] = (Ports(), Ports()),
) -> Pair:
    """Two engines of one configuration, linked within this process unless their ports have links.

    `ports` are those of the prefill engine and of the decode engine.  Raises as `create_engine` does.
    """
    engines = []
    for role, given, link in zip(("prefill", "decode"), ports, InProcessLink.pair(), strict=True):
        linked = given if given.link is not None else replace(given, link=link)
        engines.append(
            create_engine(config.for_side(role), checkpoint=checkpoint, device=device, dtype=dtype, ports=linked)
        )
    return Pair(*engines)


class InProcessLink:
    """One end of a link.  Page data is passed by reference, so pages on a GPU stay on it."""

    def __init__(self, incoming: deque[Message], outgoing: deque[Message]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @classmethod
    def pair(cls) -> "tuple[InProcessLink, InProcessLink]":
        """Make both ends of a link."""
        there, back = deque[Message](), deque[Message]()
        return cls(there, back), cls(back, there)

    def send(self, message: Message) -> None:
        self._outgoing.append(message)

    def receive(self) -> list[Message]:
        messages = list(self._incoming)
        self._incoming.clear()
        return messages

    def reject(self, detail: str) -> None:
        self._incoming.clear()
        self._outgoing.clear()

    @property
    def lag_ms(self) -> int:
        return 0

    @property
    def is_clear(self) -> bool:
        return not any(isinstance(message, PageData) for message in self._outgoing)
