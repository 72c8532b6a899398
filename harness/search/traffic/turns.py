"""The machines of a target by turns, each with the class that draws its traffic."""

from collections import Counter

from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import importing
from swarden.harness.core.target import MachineSpec, Target
from swarden.harness.search.traffic.machine import Machine
from swarden.harness.search.traffic.pairs import PairTraffic
from swarden.harness.search.traffic.traffic import EngineTraffic


def turns_of(target: Target, name: str | None) -> list[type[Machine]]:
    """The Hypothesis machines in the order of the batches: that of the machine `name`, or those of a rotation."""
    if name:
        return [_traffic_of(name, target.machines[name])]
    left = Counter({name: spec.batches for name, spec in target.machines.items()})
    order: list[str] = []
    while +left:  # the machines by turns, as long as each has batches left
        order += (+left).keys()
        left.subtract(dict.fromkeys(left, 1))
    if not order:
        raise UsageError(f"{target.name}: no machine has batches; give one at least 1, or name one with --machine")
    return [_traffic_of(name, target.machines[name]) for name in order]


def _traffic_of(name: str, spec: MachineSpec) -> type[Machine]:
    """The class for a machine of a target with this name: its own, or that of every pair, or of every engine."""
    traffic: type[Machine] = PairTraffic if spec.roles else EngineTraffic
    if spec.traffic is not None:
        with importing(f"the traffic of machine {name}", catches=BaseException):
            traffic = spec.traffic()
    if not issubclass(traffic, Machine):
        raise UsageError(f"machine {name}: its traffic {traffic!r} is not derived from {Machine.__module__}.Machine")
    return traffic if traffic.machine == name else type(traffic.__name__, (traffic,), {"machine": name})
