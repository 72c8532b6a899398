"""A capability of an SGLang scheduler: what a scheduler with it differs in, and what it does from step to step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.kit.part import NONE, Capability, Part
from swarden.invariants.view import NodeView, PoolView

if TYPE_CHECKING:
    from swarden.harness.engines.sglang.adapter import SglangEngine as SglangEngine
else:  # this module imports the parts
    SglangEngine = Any

SECONDS_PER_STEP = 0.4  # on the clocks of a release
ONE_TREE: Mapping[str, Sequence[Any]] = {"tree": ("default", "unified")}  # not that of a window alone


class Terms(NamedTuple):
    """What a capability adds, by the names of the release: ServerArgs, CacheInitParams, attributes, ranks.

    A row of the request table has `row_len` further entries.
    """

    server_args: Mapping[str, Any] = NONE
    cache_params: Mapping[str, Any] = NONE
    attributes: Mapping[str, Any] = NONE
    parallel: Mapping[str, Any] = NONE
    row_len: int = 0


class Table(NamedTuple):
    """The class of a request table, and its arguments beside those of every table."""

    kind: str
    more: Mapping[str, Any] = NONE


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


class SglangCapability(Capability, frozen=True):
    """The hooks are called if it is enabled; by default nothing differs.

    `tree` is the class of the prefix tree with it alone, and `component` that of the tree.
    """

    tree: ClassVar[str] = ""
    component: ClassVar[str] = ""

    def terms(self, config: Any) -> Terms:
        return Terms()

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        """Called before the memory is built."""

    def table(self, release: SglangRelease, config: Any, server_args: Any) -> Table | None:
        """The request table, if it is of another class."""

    def wrapped(self, release: SglangRelease, tree: Any, server_args: Any, params: Any) -> Any:
        """The tree with this capability; `params` are those with which it was built."""
        return tree

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        """Called when the scheduler has its memory and the attributes of the terms."""
