"""The KV connectors of an engine core, and the worker's side of them, as the model runner calls it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.transfers import BlockLoad
from swarden.harness.kit.launch import Line

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.config import VllmConfig

OFFLOADING, MULTI = "OffloadingConnector", "MultiConnector"
NIXL, PUSH, SIMPLE = "NixlConnector", "NixlPushConnector", "SimpleCPUOffloadConnector"
LMCACHE, MOONCAKE, P2P = "LMCacheConnectorV1", "MooncakeStoreConnector", "MooncakeConnector"
DRIVEN = (MOONCAKE, P2P, OFFLOADING, SIMPLE, NIXL, PUSH, LMCACHE)  # the last one as a store outside of the engine
LOAD_FAILS, LOAD_LATE, STORE_LATE = "load.fails", "load.late", "store.late"
LOAD_FAULTS = {
    LOAD_FAILS: "a load of external KV fails, and writes nothing: the request computes the tokens itself",
    LOAD_LATE: "a load of external KV takes four more passes",
    STORE_LATE: "a copy to CPU memory takes four more passes",
}


class ConnectorWorker:
    """The worker's side of a connector; this one has no connector.

    `loading` has, by request, the loads whose end the scheduler has not noted yet; not those of which the scheduler
    says how far they reach.  A side that `writes_blocks` may write what a pass writes, too.
    """

    writes_blocks = False

    def __init__(self) -> None:
        self.loading: dict[int, BlockLoad] = {}

    def __bool__(self) -> bool:
        """Whether a load or a copy is under way, or its end has not been reported to the scheduler yet."""
        return False

    @property
    def is_awaited(self) -> bool:
        """Whether a request may wait for a load or a copy."""
        return bool(self)

    def received(self, flight: VllmPass, output: Any) -> None:
        """Begin the loads of an output of the scheduler."""

    def computed(self, flight: VllmPass) -> Any:
        """A pass has been computed. Returns the connector's output for the scheduler; None if there is none."""
        return None


class ReleasedSide(ConnectorWorker):
    """The worker's side of a release's own connector: what it reports in a pass, the scheduler gets with the result."""

    def __init__(self, release: VllmRelease, connector: Any) -> None:
        super().__init__()
        self._release, self._connector = release, connector
        self._outputs: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return any(output.finished_recving for output in self._outputs.values())

    def report(self, *finished: Any) -> Any:
        """The connector's output for the scheduler: the transfers that have ended."""
        connector = self._connector
        sent, received, failed = reported(connector, *finished)
        return self._release.make(
            "KVConnectorOutput",
            finished_sending=sent,
            finished_recving=received,
            failed_recving=failed,
            invalid_block_ids=connector.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=getattr(connector, "build_connector_worker_meta", lambda: None)(),
        )

    def computed(self, flight: VllmPass) -> Any:
        return self._outputs.pop(id(flight))


class Transfer(msgspec.Struct):
    """A KVTransferConfig."""

    kv_connector: str = ""
    kv_connector_extra_config: dict[str, Any] = {}


def connectors_of(line: Line) -> Mapping[str, Mapping[str, Any]]:
    """The connectors of a launch line, also those below MultiConnector, each with its kv_connector_extra_config."""
    option = "kv-transfer-config"
    try:
        whole = msgspec.convert(line.mapping(option), Transfer)
        below = msgspec.convert(whole.kv_connector_extra_config.get("connectors", []), list[Transfer])
    except msgspec.ValidationError as error:
        raise line.error(option, f"a connector: {error}") from error
    extras = {each.kv_connector: each.kv_connector_extra_config for each in [whole, *below] if each.kv_connector}
    if line.number("kv-offloading-size", 0.0):
        backends = {"native": OFFLOADING, "lmcache": LMCACHE}
        extras[backends[line.checked("kv-offloading-backend", backends, "native")]] = {}
    for name in extras.keys() - {MULTI}:
        if name not in DRIVEN:
            line.leave_out(f"the connector {name}")
    return extras


def reported(connector: Any, *args: Any) -> list[list[str]]:
    """The report of a connector's worker side: the requests that are sent, those received, those that failed.

    The release has sets of texts, whose order differs from process to process; the scheduler frees in that order.
    """
    if hasattr(connector, "get_transfer_results"):
        results = connector.get_transfer_results(*args)
        sets = results.finished_sending, results.finished_recving, results.failed_recving
    else:
        sets = *connector.get_finished(*args), ()
    return [sorted(of_kind or (), key=number_of) for of_kind in sets]


def children_of(connector: Any) -> Sequence[Any]:
    """The connectors below a MultiConnector, that of CPU memory first; or the one connector."""
    children: Sequence[Any] = getattr(connector, "_connectors", [connector])
    return children


def transfer_config(release: VllmRelease, config: "VllmConfig", arguments: Mapping[str, Any]) -> Any:
    """The setting of the connectors, which the release builds; None without one."""
    settings: dict[str, Mapping[str, Any]] = {}
    for part in reversed(config.parts):  # a store is attached first, and comes last
        for name, extra in part.connectors(config, release).items():
            settings[name] = {**settings.get(name, {}), **extra}
    if not settings:
        return None
    if len(settings) > 1:
        children = [
            {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
            for name, extra in settings.items()
        ]
        settings = {MULTI: {"connectors": children}}
    [(name, extra)] = settings.items()
    usual = {
        "kv_connector": name,
        "kv_role": "kv_both",
        "engine_id": name,
        "kv_load_failure_policy": config.failure_policy,
    }
    return release.make("KVTransferConfig", **{**usual, "kv_connector_extra_config": extra, **arguments})
