"""An engine with scripted drafts."""

from collections.abc import Sequence

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.ports import Ports, Proposer
from swarden.fakes.backing import FakeBacking
from swarden.fakes.forward import FakeForward
from swarden.fakes.proposer import ScriptedProposer
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.engines.own.adapter import Oracle
from swarden.harness.kit.tags import VOCABULARY, TagModel
from tests.engine_under_test.builders import Serving


class SpeculativeServing(Serving):
    """An engine whose proposer gives drafts with these numbers of correct tokens, repeated in a cycle."""

    def __init__(self, config: EngineConfig, lengths: Sequence[int] = (), *, proposer: Proposer | None = None) -> None:
        super().__init__(config)
        oracle = Oracle([pool.window for pool in config.pools], VOCABULARY)
        scripted = ScriptedProposer(oracle, oracle.forget)
        scripted.script.accept(lengths)
        forward = UnsteadyForward(FakeForward(TagModel()), self.faults)
        ports = Ports(forward, self.clock, self.log, FakeBacking(self.faults), proposer=proposer or scripted)
        self.engine = create_engine(config, ports=ports)
