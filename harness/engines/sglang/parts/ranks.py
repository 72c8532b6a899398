"""Ranks, machines `tp`, `dp` and `pd-tp`: each is a scheduler, and they run in lock-step.

Real: so many schedulers, each with its own pools, tree, controller and storage; what they exchange on the host: the
counts of the host tier and the storage, the polls of transfers, held pages of aborted ones; with DP attention the
batches of an iteration (`prepare_mlp_sync_batch_raw`), and the idle batch of a rank without work.
Stand-in: the process groups: ranks run one at a time, up to a collective that waits for another; with DP attention a
pass is one, and the controller, which deals requests out in turn.
Shows: a rank that waits for ever, with the place of each; batches, requests, trees or free units that differ; calls
that @rank_consensus marks and one rank makes otherwise; faults come to one rank alone: `host.slow`, those of the
storage and of the transfer, `clock.jumps` (the prefetch times out), `link.metadata` (the first output arrives after
the pages).
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import isclass
from types import MethodType, SimpleNamespace
from typing import Annotated, Any

from swarden.harness.core.system import System
from swarden.harness.core.target import EQUAL_RANKS
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.engines.sglang.parts import storage
from swarden.harness.engines.sglang.parts.decode_offload import DecodeOffload
from swarden.harness.engines.sglang.parts.drafts import Drafts
from swarden.harness.engines.sglang.parts.host_tier import HOST_SLOW
from swarden.harness.engines.sglang.parts.link import LINK_FAULTS, LINK_METADATA
from swarden.harness.engines.sglang.parts.pair import PREFILL
from swarden.harness.engines.sglang.parts.rust_core import RustCore
from swarden.harness.kit.part import off
from swarden.harness.kit.ranks import DispatchedSystem, Group, Ranks, RankSystem, in_lockstep
from swarden.harness.kit.released_code import known
from swarden.harness.kit.settings import Needs, within
from swarden.harness.kit.stand_ins import Missing
from swarden.harness.kit.streams import Devices

OF_RANKS = tuple([f"sglang.srt.{name}." for name in ("mem_cache", "managers", "session", "utils", "disaggregation")])
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
    """`ranks` are --tp-size: so many schedulers of an engine or of a side of a pair, each with the same requests.

    With `dp_attention` (--enable-dp-attention, --dp-size) each has requests of its own, to which they go in turn.
    """

    ranks: Annotated[int, within(2, 8)] | None = None
    dp_attention: bool = False

    needs = (
        Needs("ranks", off(RustCore)),  # its ids are of the whole process
        Needs("dp_attention", {"ranks": range(2, 9), **off(Drafts, DecodeOffload)}),  # a server refuses NGRAM
    )
    server_need = "ranks"

    def terms(self, config: Any) -> Terms:
        assert self.ranks is not None, "asked only if there are several"
        name, rank = config.side.role if config.side.is_on else "tp", Ranks.running()
        every = Group(name, self.ranks)
        group = Group(name, 1) if self.dp_attention else every  # of those that have the same requests
        sizes = dict.fromkeys(("tp_size", "dp_size"), self.ranks)
        parallel = {"tp_rank": rank, "attn_tp_rank": 0 if self.dp_attention else rank, "tp_size": self.ranks}
        parallel |= {"attn_tp_size": group.size, "moe_tp_size": self.ranks}
        if self.dp_attention:
            parallel |= dict.fromkeys(("num_dp_ranks", "attn_dp_size", "dp_size"), self.ranks)
            parallel |= {"attn_dp_enabled": True, "attn_dp_rank": rank, "attn_cp_size": 1}
        return Terms(
            server_args={**sizes, "enable_dp_attention": True} if self.dp_attention else {},
            cache_params={"tp_cache_group": group, "attn_tp_cache_group": group},
            attributes={"attn_tp_cpu_group": group, "tp_cpu_group": every},
            parallel=parallel,
        )

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        return EQUAL_RANKS if self.dp_attention else ()

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        """With the release's own synchronization of batches; in newer releases it is an object of its own."""
        if not self.dp_attention:
            return
        every, active = scheduler.tp_cpu_group, release.torch.ones(self.ranks, dtype=release.torch.int64)
        group = SimpleNamespace(cpu_group=every, device_group=every, device="cpu")
        group.active_ranks = group.active_ranks_cpu = active
        vars(scheduler).update(
            require_mlp_sync=True, tp_group=group, attn_tp_size=1, attn_cp_size=1, offload_tags=set()
        )
        adapter, base = release.code("DPAttnAdapter"), release.code("Scheduler")
        sync = base.maybe_prepare_mlp_sync_batch if adapter is None else adapter.maybe_prepare_mlp_sync_batch
        sys.modules[sync.__module__].__dict__["get_tp_group"] = lambda: group
        if (parallel := release.code("get_parallel")) is not None:
            parallel()._overrides["tp_group"] = group
        if adapter is None:
            scheduler.maybe_prepare_mlp_sync_batch = MethodType(sync, scheduler)
        else:
            runner = Missing(spec_algorithm=scheduler.spec_algorithm)
            made = {**vars(scheduler), "model_runner": runner, "get_require_mlp_sync": lambda: True}
            scheduler.dp_attn_adapter = adapter(**known(made, adapter))

    def shape(self, config: Any) -> Mapping[str, Any]:
        return {"ranks": self.ranks, "differing": DIFFERING}

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def uses(self, config: Any) -> Collection[str]:
        return [storage.CLOCK_JUMPS] * config.storage.is_on + [LINK_METADATA] * (config.side.role == PREFILL)

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        """Compare the calls of methods that the release marks with @rank_consensus (from 0.5.22), or meet in passes."""
        if self.dp_attention:
            assert self.ranks is not None, "needed"
            return [PassOfAll(Group("passes", self.ranks))]
        for owner in (engine.memory.tree, engine.memory.allocator):
            for name in dir(type(owner)):
                if (checked := getattr(getattr(type(owner), name, None), "swarden_checked", None)) is not None:
                    setattr(owner, name, MethodType(checked(), owner))
        return ()

    def systems(self, release: SglangRelease, build: Callable[[], Sequence[System]]) -> Sequence[System]:
        """The ranks of the engines that `build` makes, which are one, or the sides of a pair.

        What a release counts in its classes and modules, each rank counts for itself.
        """
        assert self.ranks is not None, "asked only if there are several"
        held, of_parallel = [(Devices, "current"), *_counters()], release.code("get_parallel")
        if of_parallel is not None:
            context = sys.modules[of_parallel.__module__]
            held += [(context, name) for name in ("_CONTEXT", "_PARALLEL") if name in vars(context)]
            held += [(of_parallel(), "_overrides")]
        ranks = Ranks(self.ranks, held)
        parallel = vars(import_module("sglang.srt.distributed.parallel_state"))
        parallel["create_custom_parallel_group"] = lambda group_ranks, backend="gloo": ranks.new_group()
        of_ranks = [engines.result(timeout=0) for engines in ranks.run([build] * self.ranks)]
        kind = DispatchedSystem if self.dp_attention else RankSystem
        of_engines = [in_lockstep(ranks, of_engine, kind) for of_engine in zip(*of_ranks, strict=True)]
        return [system for of_rank in zip(*of_engines, strict=True) for system in of_rank]


class PassOfAll(SglangPart):
    """The layers behind the attention compute the tokens of all ranks at once, so each of them has to take part."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def launching(self, batch: Any) -> None:
        form = f"{batch.global_num_tokens} tokens{' of prompts' * bool(batch.is_extend_in_batch)}"
        self._group.meet("pass", form, None)


def _counters() -> Iterator[tuple[Any, str]]:
    """Where the modules of a scheduler count nodes, operations and uses for the whole process, and read the time."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith(OF_RANKS):
            if "time" in vars(module):
                yield module, "time"
            kinds = [kind for kind in vars(module).values() if isclass(kind) and kind.__module__ == name]
            for owner in (module, *kinds):
                yield from [(owner, counter) for counter in sorted(vars(owner)) if _is_counter(owner, counter)]


def _is_counter(owner: Any, name: str) -> bool:
    return COUNTER in name.lower() and isinstance(vars(owner)[name], int | float)
