"""Tensor-parallel ranks, machines `tp` and `pd-tp`: each is a scheduler, and they run in lock-step.

Real: so many schedulers, each with its own pools, tree, controller and storage; what they exchange on the host: the
counts of the host tier and the storage, the polls of transfers, held pages of aborted ones.
Stand-in: the process groups: ranks run one at a time, up to a collective that waits for another.
Shows: a rank that waits for ever, with the place of each; batches, requests, trees or free units that differ; faults
come to one rank alone: `host.slow`, those of the storage and of the transfer, `clock.jumps` (the prefetch times
out), `link.metadata` (the first output arrives after the pages).
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import isclass
from typing import Annotated, Any

from swarden.harness.core.system import System
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, Terms
from swarden.harness.engines.sglang.parts import storage
from swarden.harness.engines.sglang.parts.host_tier import HOST_SLOW
from swarden.harness.engines.sglang.parts.link import LINK_FAULTS, LINK_METADATA
from swarden.harness.engines.sglang.parts.pair import PREFILL
from swarden.harness.engines.sglang.parts.rust_core import RustCore
from swarden.harness.kit.part import off
from swarden.harness.kit.ranks import Group, Ranks, in_lockstep
from swarden.harness.kit.settings import Needs, within
from swarden.harness.kit.streams import Devices

OF_RANKS = tuple([f"sglang.srt.{name}." for name in ("mem_cache", "managers", "session", "utils", "disaggregation")])
GROUPS, RANKS_OF_TENSORS = ("attn_tp_cpu_group", "tp_cpu_group"), ("tp_rank", "attn_tp_rank")  # of a scheduler
SIZES = ("tp_size", "attn_tp_size", "moe_tp_size")
COUNTER = "counter"
FAULTS = {
    storage.CLOCK_JUMPS: "the clock by which the storage times out jumps ahead",
    LINK_METADATA: "the first output of a transfer arrives some steps after its pages",
}
# Each field that the laws compare has its source in docs/sglang.md.
# Not a full host pool: the sizes are equal, and what a prefetch gives back is counted on all ranks (0.5.23,
# unified_radix_cache.py:3316).  Not an abort: the requests are broadcast (request_receiver.py:206).
DIFFERING = (HOST_SLOW, *storage.FAULTS, *LINK_FAULTS, *FAULTS)


class RankGroup(SglangCapability, frozen=True):
    """`ranks` are --tp-size: so many schedulers of an engine or of a side of a pair, each with the same requests."""

    ranks: Annotated[int, within(2, 8)] | None = None

    needs = (Needs("ranks", off(RustCore)),)  # its ids are of the whole process
    server_need = "ranks"

    def terms(self, config: Any) -> Terms:
        assert self.ranks is not None, "asked only if there are several"
        group, rank = Group(config.side.role if config.side.is_on else "tp", self.ranks), Ranks.running()
        return Terms(
            cache_params={"tp_cache_group": group, "attn_tp_cache_group": group},
            attributes=dict.fromkeys(GROUPS, group),
            parallel={**dict.fromkeys(RANKS_OF_TENSORS, rank), **dict.fromkeys(SIZES, self.ranks)},
        )

    def shape(self, config: Any) -> Mapping[str, Any]:
        return {"ranks": self.ranks, "differing": DIFFERING}

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def uses(self, config: Any) -> Collection[str]:
        return [storage.CLOCK_JUMPS] * config.storage.is_on + [LINK_METADATA] * (config.side.role == PREFILL)

    def systems(self, release: SglangRelease, build: Callable[[], Sequence[System]]) -> Sequence[System]:
        """The ranks of the engines that `build` makes, which are one, or the sides of a pair.

        What a release counts in its classes and modules, each rank counts for itself.
        """
        assert self.ranks is not None, "asked only if there are several"
        held, of_parallel = [(Devices, "current"), *_counters()], release.code("get_parallel")
        if of_parallel is not None:
            held += [(of_parallel(), "_overrides"), (sys.modules[of_parallel.__module__], "_CONTEXT")]
        ranks = Ranks(self.ranks, held)
        parallel = vars(import_module("sglang.srt.distributed.parallel_state"))
        parallel["create_custom_parallel_group"] = lambda group_ranks, backend="gloo": ranks.new_group()
        of_ranks = [engines() for engines in ranks.run([build] * self.ranks)]
        of_engines = [in_lockstep(ranks, of_engine) for of_engine in zip(*of_ranks, strict=True)]
        return [system for of_rank in zip(*of_engines, strict=True) for system in of_rank]


def _counters() -> Iterator[tuple[Any, str]]:
    """Where the modules of a scheduler count nodes, operations and uses for the whole process, and read the time."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith(OF_RANKS):
            yield from ((module, one) for one in sorted(vars(module)) if _is_counter(module, one) or one == "time")
            kinds = [kind for kind in vars(module).values() if isclass(kind) and kind.__module__ == name]
            yield from ((kind, one) for kind in kinds for one in sorted(vars(kind)) if _is_counter(kind, one))


def _is_counter(owner: Any, name: str) -> bool:
    return COUNTER in name.lower() and isinstance(vars(owner)[name], int | float)
