"""Sidecar of KV: the index keys of sparse attention, a row per KV token, which go with its slots to host and storage.

Real: from 0.5.17: `MiniMaxSparseKVPool`, the host pool of its index keys, their copies and their pages in the storage.
Stand-in: a second tag per KV slot, which a pass writes and reads with that of KV.
Shows: KV that is restored without its index keys, or with those of other tokens.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from swarden.harness.core.target import Draw
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart
from swarden.harness.engines.sglang.parts.pair import Side
from swarden.harness.engines.sglang.parts.states import States
from swarden.harness.kit.launch import Line, entry_of_model, table
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import IfReleaseHas, Needs
from swarden.harness.kit.tags import TagMemory

SPARSE = {"minimax-m3|deepseek-v3[.]2|glm-5": {"sidecar": True}}  # by the name of a model
SIDECAR = "indexer"  # the name of its host pool in the releases
LAYERS = DENSE, SPARSE_LAYER = 0, 1


def of_line(line: Line) -> bool:
    is_driven = line.has("enable-hierarchical-cache") and not line.word("disaggregation-mode")
    return is_driven and "sidecar" in entry_of_model(line, SPARSE)


class Sidecar(SglangCapability, frozen=True):
    """`sidecar` is a model with sparse attention, whose index keys lie beside KV in a pool with the same slots."""

    sidecar: Annotated[bool, IfReleaseHas("sidecar")] = False

    needs = (Needs("sidecar", {"sliding_window": (None,), **off(Side, States)}),)
    server_need = "sparse attention"
    launch_table = table(sidecar=of_line)

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        is_drawn = has("sidecar") and config.host.is_on and not config.has_window
        return {"sidecar": draw.one_of((False, True))} if is_drawn else {}

    def pool(self, release: SglangRelease, sizes: Mapping[str, Any]) -> Any:
        """The pool of KV of a dense and a sparse layer, with that of the index keys of the sparse one."""
        return release.code("MiniMaxSparseKVPool")(
            **sizes,
            idx_head_dim=sizes["head_dim"],
            dense_layer_ids=[DENSE],
            sparse_layer_ids=[SPARSE_LAYER],
            disable_value_sparse_layer_ids=[SPARSE_LAYER],  # the host tier supports no other ones
            start_layer=0,
            end_layer=len(LAYERS),
        )

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        config, [of_kv] = engine.config, engine.forward.tags
        engine.forward.tags = (SidecarTags(of_kv, TagMemory(config.full_pages, config.page_size)),)
        return ()


class SidecarTags(TagMemory):
    """The tags of `kv` and of the `rows` of its sidecar.  A slot holds the KV of a prefix if both are of it."""

    def __init__(self, kv: TagMemory, rows: TagMemory) -> None:
        super().__init__(0)
        self.kv, self.rows = kv, rows

    def read(self, slots: Iterable[int], component: int = 0) -> "array[int]":
        """The tag of each slot; where the two differ that of no prefix, or 0 if one of them was not written."""
        places = [*slots]
        pairs = zip(self.kv.read(places), self.rows.read(places), strict=True)
        return array("q", [tag if tag == row else tag and row and tag ^ row for tag, row in pairs])

    def write(self, slots: Iterable[int], tags: Iterable[int], component: int = 0) -> None:
        places, values = [*slots], [*tags]
        for memory in (self.kv, self.rows):
            memory.write(places, values)

    def clear(self) -> None:
        for memory in (self.kv, self.rows):
            memory.clear()


def kv_of(tags: TagMemory) -> TagMemory:
    """The tags of KV alone."""
    return tags.kv if isinstance(tags, SidecarTags) else tags
