"""Mamba layers: where a pass reads and writes their recurrent states, and the copies that the worker makes.

Real: `MambaManager` in mode "align", "none" without a prefix cache, or "all" (to 0.28.0).
Stand-in: one tag per state, moved, copied and zeroed as in `v1/worker/mamba_utils.py`.
Shows: the state of another prefix.

As in v1/worker/mamba_utils.py and v1/attention/backends/mamba_attn.py of the releases.  A block of a state table holds
the state after the last token that was computed in it.  In mode "align" the running state moves to another block by a
copy before the pass; after each draft, the state goes to a block of its own behind it.  The kernels compute all entries
of a pass at once: a block that another entry writes is no source.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.layers import ALIGN, ALL, NONE, LayerGroup
from swarden.harness.engines.vllm.parts.drafts import Drafts
from swarden.harness.engines.vllm.parts.part import CACHED, Named, VllmConfig, VllmPart
from swarden.harness.engines.vllm.passes import Columns, VllmEntry
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import IfReleaseHas, Needs, PartOf, replaced, within
from swarden.harness.kit.tags import TagMemory

ALL_STATES, WIDE_STATES = "all_states", "wide_states"  # features of a release
SOME_GROUPS: dict[str, Sequence[Any]] = {"state_groups": range(1, 5)}
STATE_WINDOW = 2  # a token reads the state that the token before it left


class States(VllmPart, frozen=True):
    """`state_groups` are groups of Mamba layers, with the mamba_cache_mode of the prefix cache: "align", or "all" with
    `all_states`; without a prefix cache it is "none".  With a `prefix_match_unit`, a cached prefix can end inside a
    block, at multiples of so many tokens.
    """

    state_groups: Annotated[int, within(0, 4)] = 0
    all_states: Annotated[bool, PartOf("state_groups"), IfReleaseHas(ALL_STATES)] = False
    prefix_match_unit: Annotated[
        Annotated[int, within(1, 4096)] | None, PartOf("state_groups"), IfReleaseHas("match_unit")
    ] = None

    needs = (Needs("all_states", CACHED | off(Drafts) | {"second_runner": (False,), "mooncake_blocks": (0,)}),)
    server_need = "recurrent states"

    def mode(self, *, prefix_caching: bool) -> str:
        """The mamba_cache_mode."""
        if not self.is_on or not prefix_caching:
            return NONE
        return ALL if self.all_states else ALIGN

    def layers(self, block_len: int) -> tuple[LayerGroup, ...]:
        return (LayerGroup(STATE_WINDOW, block_len, has_states=True),) * self.state_groups

    def check(self, config: VllmConfig) -> None:
        sizes = {group.block_len for group in config.groups}
        if self.all_states and not self.is_on:
            raise InvalidConfig("all_states is true without state_groups, want false")
        if self.all_states and len(sizes) > 1:
            raise InvalidConfig("window_block_sizes differ from block_size, which a release refuses with all_states")
        if self.is_on and config.drafts.is_on and config.streaming.is_on:
            raise InvalidConfig("streaming_input and draft_len are set with state_groups: the three are not driven")
        if (unit := self.prefix_match_unit) and (config.state_mode != ALIGN or any(size % unit for size in sizes)):
            raise InvalidConfig(f"prefix_match_unit is {unit}, want null, or a divisor of block_size with state_groups")
        if config.state_mode == ALIGN and config.store.loads_within_a_step:
            raise InvalidConfig(
                "late_loads is false with external_len and state_groups, want true, or prefix_caching false"
            )

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        least = max(group.block_len for group in config.groups)
        if config.state_mode == ALIGN and config.chunk_len < least and not release.has(WIDE_STATES):
            want = f"at least {least}, the tokens of a block, for vllm {release.text}"
            raise InvalidConfig(f"chunk_len is {config.chunk_len} with state_groups, want {want}")

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        mode, [block_len] = config.state_mode, {group.block_len for group in config.groups if group.has_states}
        return {
            "CacheConfig": {
                "mamba_cache_mode": mode,
                "mamba_block_size": None if mode == NONE else block_len,
                "prefix_match_unit": self.prefix_match_unit,
            },
            "MambaSpec": {"mamba_cache_mode": mode},
        }


def num_blocks_of(mode: str, context_len: int, block_len: int) -> int:
    """The blocks of one group for the states of a request, without those for drafts."""
    return {NONE: 1, ALIGN: 2, ALL: -(-context_len // block_len)}[mode]


def with_states(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with groups of Mamba layers."""
    sizes = {group.block_len for group in config.groups}
    can_keep_all = config.prefix_caching and len(sizes) == 1 and has(ALL_STATES) and not config.second_runner
    return replaced(
        config,
        state_groups=draw.one_of((1, 2)),
        all_states=can_keep_all and draw.one_of((False, True)),
        **config.with_chunk(*sizes),
    )


class VllmStates:
    """The running state of each request.

    `_column` is its place in the tables when the last pass was launched.  `_accepted` is the number of drafts that the
    last pass accepted: the state after them is so many places behind.
    """

    def __init__(self, mode: str, groups: Sequence[LayerGroup], memory: TagMemory) -> None:
        self._memory, self._mode = memory, mode
        sizes = {index: group.block_len for index, group in enumerate(groups) if group.has_states}
        self.groups, self._size = tuple(sizes), max(sizes.values(), default=1)
        self._column: dict[int, int] = {}
        self._accepted: dict[int, int] = {}

    def restart(self, request: int) -> None:
        """The request begins or resumes with the pass to be launched: its state is that of its last computed token."""
        self._column.pop(request, None)

    def begin(self, requests: Collection[int]) -> None:
        """The pass in which these requests begin or resume is computed; the one before it has accepted no drafts."""
        for request in requests:
            self._accepted.pop(request, None)

    def accepted(self, request: int) -> int:
        """The drafts after which the running state is that of the next pass, so many places behind the first one."""
        return self._accepted.get(request, 0)

    def columns(self, request: int, start: int, end: int, num_drafts: int) -> Columns:
        """The places of the next pass, which computes [start, end); the last positions are those of drafts."""
        if self._mode == NONE:
            return Columns(0 if start else -1, 0, num_drafts)
        source, last = (start - 1) // self._size, (end - 1) // self._size
        if self._mode == ALIGN:
            source = self._column.get(request, source)
            self._column[request] = last
            return Columns(source, last, last + num_drafts)
        return Columns(source, start // self._size, last)

    def blocks(self, entry: VllmEntry, group: int) -> tuple[int, ...]:
        """The blocks that an entry writes."""
        columns = range(entry.columns.first, entry.columns.last + 1)
        return tuple(filter(None, [entry.block(group, column) for column in columns]))

    def move(self, entries: Sequence[VllmEntry], loaded: Collection[int]) -> None:
        """Make the copies before a pass; blocks in `loaded` are written after them, and are no source."""
        if self._mode == ALIGN:
            moved = [entry for entry in entries if entry.columns.source not in (-1, entry.columns.first)]
            places = [(entry.columns.source + self.accepted(entry.request), entry) for entry in moved]
            self._copy([(entry, source, entry.columns.first) for source, entry in places], loaded)
            self._accepted.update(dict.fromkeys([entry.request for entry in moved], 0))

    def read(self, entries: Sequence[VllmEntry]) -> Mapping[tuple[int, int], int]:
        """The tag of the state before a pass, by request and group."""
        written = {
            block: entry.request for entry in entries for group in self.groups for block in self.blocks(entry, group)
        }
        tags = {}
        for entry in entries:
            source, first, _ = entry.columns
            column = (first if self._mode == ALIGN else source) + self.accepted(entry.request)
            for group in self.groups if source >= 0 else ():
                block = entry.block(group, column)
                is_own = written.get(block, entry.request) == entry.request
                tags[entry.request, group] = (
                    self._memory.read([block * self._memory.unit_size], group)[0] if is_own else 0
                )
        return tags

    def write(self, entry: VllmEntry, group: int, tags: Sequence[int]) -> None:
        """Write states of an entry; `tags` are those of all its positions."""
        _, first, last = entry.columns
        for column in range(first, last + 1):
            if self._mode in (ALIGN, NONE):
                index = len(tags) - 1 - last + column
            else:
                index = min((column + 1) * self._size, entry.end) - 1 - entry.start
            self._memory.fill(entry.block(group, column), tags[index], group)

    def accept(self, entries: Sequence[VllmEntry], accepted: Sequence[int]) -> None:
        """A pass is over, and so many drafts of each entry are right.

        In mode "align", the state at the end of a block is copied to this block, if the pass went beyond it.
        """
        copies = []
        for entry, count in zip(entries, accepted, strict=True):
            computed = entry.end - len(entry.drafts)
            whole = (computed + count) // self._size
            source, target = entry.columns.first + whole * self._size - computed, whole - 1
            is_at_border = self._mode == ALIGN and whole * self._size >= computed
            if is_at_border and source != target:
                copies.append((entry, source, target))
            self._accepted[entry.request] = 0 if is_at_border and entry.columns.first == target else count
        self._copy(copies)

    def _copy(self, copies: Iterable[tuple[VllmEntry, int, int]], unready: Collection[int] = ()) -> None:
        """Copy blocks of entries, from one column to another; blocks that are `unready` are no source."""
        pairs = [
            (entry.block(group, source), entry.block(group, target))
            for entry, source, target in copies
            for group in self.groups
        ]
        unready = {*unready, *[target for _, target in pairs]}
        for source, target in pairs:
            if target and source != target:
                self._memory.put_unit(target, self._memory.unit(source if source not in unready else 0))
