"""A capability of an SGLang engine as one object, and the objects that it works on."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.forward import TagForward
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.engines.sglang.requests import SglangRequests
from swarden.harness.kit.part import Part
from swarden.invariants.view import NodeView, PoolView

SECONDS_PER_STEP = 0.4  # on the clocks of a release


class Core(NamedTuple):
    """The objects of one engine that its parts work on; `notice` takes their events."""

    release: SglangRelease
    scheduler: Any
    memory: SglangMemory
    requests: SglangRequests
    forward: TagForward
    faults: FaultPlan
    notice: Callable[[NamedTuple], None]


class SessionSlot(NamedTuple):
    """The KV that a release keeps for a session, also while a turn runs on it."""

    session: int
    slot: Any


class SglangPart(Part):
    """By default a part does nothing, and has no pools on the host.

    `host_pools` are the names of its pools on the host, per component.
    """

    host_pools: Sequence[str] = ()

    @property
    def is_in_flight(self) -> bool:
        """Whether a copy to or from the host had not ended when the release asked last."""
        return False

    def stepped(self) -> None:
        """An iteration of the event loop has ended."""

    def launching(self, batch: Any) -> None: ...

    def launched(self, batch: Any, result: Any) -> None: ...

    def completed(self, result: Any) -> None:
        """The scheduler begins to process a result."""

    def cleared(self) -> None:
        """At the end of a drain, after the caches were cleared."""

    @property
    def slots(self) -> Iterable[SessionSlot]:
        """The KV that is kept for sessions."""
        return ()

    def ended(self) -> Sequence[Any]:
        """The requests that have ended, but keep their KV until it has been copied."""
        return ()

    def pools(self, nodes: Sequence[NodeView]) -> Iterable[PoolView]:
        """Its pools on the host."""
        return ()

    def copies(self, node: Any) -> tuple[tuple[Sequence[int], ...], Sequence[int]]:
        """Per pool on the host, the units of a node, and the number of locks that keep them there."""
        return (), ()

    def locks(self) -> Iterable[tuple[str, Any, Any]]:
        """The kind, the node and the receipt, if there are any, of the locks of copies in flight."""
        return ()

    def lose_kv(self) -> bool:
        """All KV is lost in a reset; whether a copy to or from the host is lost with it."""
        return False
