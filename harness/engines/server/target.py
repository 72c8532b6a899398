"""A server over HTTP as a target."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import msgspec

from swarden.harness.core.ops import Abort, Drain, Flush, Pause, Resume, Step, Submit
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort
from swarden.harness.core.program import HTTP, Program
from swarden.harness.core.registry import target_of
from swarden.harness.core.sources import version_of_package
from swarden.harness.core.target import ENGINE, Configs, MachineSpec
from swarden.harness.engines.server.adapter import ServerPort
from swarden.harness.engines.server.config import LEARNED, ServerConfig
from swarden.harness.engines.server.process import Connection, published
from swarden.harness.engines.server.program import program_of
from swarden.harness.kit.settings import ConfiguredTarget, drawn


@cache
def connection() -> Connection:
    """The one server of this process."""
    return Connection(published())


class ServerTarget(ConfiguredTarget):
    """Any server; it is driven from outside, so a run of the same ops need not be the same."""

    name = "server"
    code = EngineCode("swarden.harness.engines.server")
    machines: Mapping[str, MachineSpec] = {
        ENGINE: MachineSpec(
            (Submit, Abort, Step, Flush, Pause, Resume, Drain),
            one_step_of=4,  # a step is a round, which waits for all answers
            draws_of_rule=(1, 4, 8),  # a run may begin with a new server
        )
    }
    config_type = ServerConfig
    kept = LEARNED
    is_repeatable = False
    calm: Mapping[str, Any] = {"concurrent": False, "paused": False}

    @property
    def settable(self) -> Collection[str]:
        return self.defaults

    def version(self) -> str:
        return version_of_package("swarden")

    def programs(self) -> Mapping[str, Callable[[Any], Program]]:
        return {HTTP: program_of}

    def avoidances(self, configs: Configs, fingerprints: Iterable[str]) -> Mapping[str, AbstractContextManager[None]]:
        command, api = connection().server.restart, self.decode(configs[0]).api
        of_api = [bug for bug in self.known_bugs().values() if bug.api == api]
        bugs = [bug for bug in of_api if bug.avoided_by and bug.is_called(fingerprints)]
        return {bug.name: self._started_with(bug.avoided_by) for bug in bugs if command and bug.caused_by in command}

    @contextmanager
    def _started_with(self, flags: str) -> Iterator[None]:
        """The server has further flags in the body."""
        own, server = connection(), connection().server
        own.close()
        own.server = msgspec.structs.replace(server, restart=f"{server.restart} {flags}")
        try:
            yield
        finally:
            own.close()
            own.server = server

    def behind_port(self, configs: Configs) -> tuple[str, Configs] | None:
        config = self.decode(configs[0])
        if not config.release:
            return None
        target = target_of(config.release)
        return config.release, [target.encode(target.config_of(config.shape))]

    def check_environment(self) -> None:
        published()

    def build(self, config: ServerConfig) -> EnginePort:
        return ServerPort(config, connection())

    def config(self, draw: Any) -> Any:
        values = drawn(draw, ServerConfig)
        return ServerConfig(**values | {"paused": values["paused"] and values["concurrent"]})
