"""The worker's side: the memory of the device, the model runner, and what copies KV."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.outputs import KVConnectorOutput

from swarden.harness.engines.vllm.transfers import BlockLoad, offloaded_blocks

GROUPS: list[tuple[int | None, int]] = [(None, 16)]  # of layers: window (None: full attention, 0: Mamba), block size
SAVES = False
FAILED_LOADS: list[int] = []  # the numbers of the loads, from 1 on
LATE_LOADS: list[int] = []
DRAFT_LEN = 0
RIGHT: list[int] = []  # how many drafts of each proposal are right, in order; then none
ANSWERS: dict[str, list[int]] = {}  # of the model, by request
READS = False
CHUNK_BLOCKS = 1  # of the device, in a chunk of CPU memory
KV = tuple[int, str | None, tuple[int, ...]]  # in place of the KV of a token: its group, the salt, all tokens up to it


class Entry(NamedTuple):
    """The tokens of a request in a batch; `start` is None behind a batch in flight, which may reject drafts."""

    request_id: str
    start: int | None
    num_tokens: int
    num_drafts: int
    tables: Sequence[Sequence[int]]
    held: set[int]  # the blocks with a reference when the batch was scheduled


def answer(request_id: str, place: int) -> int:
    """The token that the model samples for a request at a place of its output."""
    tokens = ANSWERS.get(request_id, [])
    return tokens[place] if place < len(tokens) else 7 + place


class Memory:
    """The memory of the device: in place of the KV of a token, its group, the salt, and all tokens up to it."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.kv: dict[tuple[int, int], KV] = {}
        self.salts: dict[str, str | None] = {}
        self.tables: dict[str, list[list[int]]] = {}

    def write(
        self, request_id: str, tables: Sequence[Sequence[int]], tokens: list[int], positions: Iterable[int]
    ) -> None:
        for position in positions:
            for group, (window, size) in enumerate(GROUPS):
                index = position // size
                if index < len(tables[group]) and tables[group][index]:
                    kv = (group, self.salts[request_id], tuple(tokens[: position + 1]))
                    self.kv[tables[group][index], position % size if window != 0 else 0] = kv  # one state a block

    def copy(self, source: int, target: int) -> None:
        self.kv.update({(target, offset): kv for (block, offset), kv in self.kv.items() if block == source})

    def read(self, entry: Entry, start: int, tokens: list[int], moved: bool | None = None) -> None:
        """Read what an entry sees in each group, which must be the KV of its own tokens, in blocks of its own.

        Of states, that behind the token before it, which is overwritten, or moved to another block before all loads.
        """
        rid, end = entry.request_id, start + entry.num_tokens
        for group, (window, size) in enumerate(GROUPS):
            table, first = entry.tables[group], max(0, start - window + 1) if window else 0
            if window == 0:
                is_read = moved == ((start - 1) // size != (end - 1) // size)
                positions = range(max(0, start - 1), start if is_read else 0)
            else:
                positions = range(first, end if moved is None else 0)
            for position in positions:
                block = table[position // size] if position // size < len(table) else None
                where = "the null block" if block == 0 else f"block {block}"
                place = f"token {position} of group {group} is read from {where}"
                reads = f"request {rid} computes tokens {start} to {end}: {place}"
                kv = self.kv.get((block or 0, position % size if window != 0 else 0))
                what = "nothing" if kv is None else f"KV of {len(kv[2])} tokens of group {kv[0]}"
                own = (group, self.salts[rid], tuple(tokens[: position + 1]))
                assert kv == own, f"{reads}, which holds {what}"
                assert block in entry.held, f"{reads}, which was free when the batch was scheduled"


class Runner:
    """The model runner: it knows what the scheduler's outputs say, and samples what ANSWERS says."""

    def __init__(self, pool: Any) -> None:
        self.memory = Memory(pool)
        self.tokens: dict[str, list[int]] = {}
        self.prompt_lens: dict[str, int] = {}
        self.drafts: dict[str, list[int]] = {}
        self.right = list(RIGHT)
        self.ends: dict[str, int] = {}  # of what has been computed, without the drafts that were rejected
        self.last: set[str] = set()  # the requests of the last batch

    def entries(self, output: Any, in_flight: set[str]) -> list[Entry]:
        """The entries of a batch, with the block tables of the scheduler's output."""
        starts, begun, tables = {}, set(), self.memory.tables
        for new in output.scheduled_new_reqs:
            starts[new.req_id] = new.num_computed_tokens
            self.tokens[new.req_id] = list(getattr(new, "prefill_token_ids", None) or new.prompt_token_ids)
            tables[new.req_id] = [list(group) for group in new.block_ids]
            begun.add(new.req_id)
        cached = output.scheduled_cached_reqs
        for rid, start, blocks in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            starts[rid] = start
            if rid in cached.resumed_req_ids:
                begun.add(rid)
                tables[rid] = [list(group) for group in blocks]
            elif blocks is not None:
                tables[rid] = [[*table, *more] for table, more in zip(tables[rid], blocks, strict=True)]
            if rid in cached.all_token_ids and (rid in cached.resumed_req_ids or rid not in self.last):
                self.tokens[rid] = list(cached.all_token_ids[rid])
        self.last = set(output.num_scheduled_tokens)
        entries = []
        for rid, count in output.num_scheduled_tokens.items():
            held = {block for table in tables[rid] for block in table if self.memory.pool.blocks[block].ref_cnt > 0}
            num_drafts = len(output.scheduled_spec_decode_tokens.get(rid, ()))
            start = None if rid in in_flight and rid not in begun else starts[rid]
            entries.append(Entry(rid, start, count, num_drafts, tables[rid], held))
        return entries

    def move_states(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            start = self.ends[entry.request_id] if entry.start is None else entry.start
            self.memory.read(entry, start, self.tokens[entry.request_id], moved=True)

    def compute(self, entry: Entry) -> list[int]:
        """The tokens that are sampled for an entry of a batch."""
        rid, tokens = entry.request_id, self.tokens[entry.request_id]
        start = self.ends[rid] if entry.start is None else entry.start
        end, drafts = start + entry.num_tokens, [*self.drafts.get(rid, []), *[0] * entry.num_drafts][: entry.num_drafts]
        if READS:
            if not DRAFT_LEN:
                self.memory.read(entry, start, tokens, moved=False)
            self.memory.write(rid, entry.tables, tokens + drafts, range(start, end))
            self.memory.read(entry, start, tokens + drafts)
        self.ends[rid] = end
        if end - entry.num_drafts < len(tokens):
            return []
        place = len(tokens) - self.prompt_lens[rid]
        sampled = [answer(rid, place)]
        if DRAFT_LEN:
            while len(sampled) <= len(drafts) and drafts[len(sampled) - 1] == sampled[-1]:
                sampled.append(answer(rid, place + len(sampled)))
            self.ends[rid] = end - entry.num_drafts + len(sampled) - 1
            num_right, place = self.right.pop(0) if self.right else 0, place + len(sampled)
            self.drafts[rid] = [answer(rid, place + number) + (number >= num_right) for number in range(DRAFT_LEN)]
        tokens += sampled
        return sampled


@dataclass
class UnderWay:
    load: BlockLoad
    fails: bool
    batches: int  # until it ends


class Loads:
    """The worker's side of a connector."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.num_begun = memory, 0
        self.under_way: list[UnderWay] = []
        self.saves: dict[str, int] = {}  # the batches until each ends

    def begin(self, load: BlockLoad) -> None:
        self.num_begun += 1
        fails = self.num_begun in FAILED_LOADS
        if load.is_late:
            self.under_way.append(UnderWay(load, fails, 6 if self.num_begun in LATE_LOADS else 2))
        if READS:
            if not fails and (self.num_begun % 2 or not load.is_late):
                self.write(load)  # a load is not ordered with the batches

    def write(self, load: BlockLoad) -> None:
        self.memory.write(load.rid, load.tables, list(load.tokens), range(load.start, load.end))

    def pass_batch(self) -> Any:
        """The connector's report on the loads that have ended behind a batch."""
        for copy in self.under_way:
            copy.batches -= 1
            if READS:
                if not copy.batches and not copy.fails:
                    self.write(copy.load)
        ended = [copy for copy in self.under_way if not copy.batches]
        self.under_way = [copy for copy in self.under_way if copy.batches]
        self.saves = {rid: batches - 1 for rid, batches in self.saves.items()}
        sent = {rid for rid, batches in self.saves.items() if not batches}
        reports: dict[str, Any] = {"finished_recving": {copy.load.rid for copy in ended}}
        if SAVES:
            reports["finished_sending"] = sent
        if FAILED_LOADS:
            reports["failed_recving"] = {copy.load.rid for copy in ended if copy.fails}
        return KVConnectorOutput(**reports) if ended or sent else None


class Copy(NamedTuple):
    number: int
    after: int  # of the batches launched
    device: Any
    host: Any
    to_host: bool


class Copier(OffloadingWorker):
    """A copy to or from CPU memory ends behind the batches that were launched before it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.jobs: list[Copy] = []
        self.made: list[Copy] = []
        self.launched = self.computed = 0
        self.host: dict[tuple[int, int], dict[int, KV]] = {}  # the KV of the blocks of each chunk

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self.jobs.append(Copy(job_id, self.launched, src_spec, dst_spec, to_host=True))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        self.jobs.append(Copy(job_id, self.launched, dst_spec, src_spec, to_host=False))
        return True

    def get_finished(self) -> list[Any]:
        self.make()
        ended = [job for job in self.jobs if job.after <= self.computed]
        self.jobs = self.jobs[len(ended) :]
        return [TransferResult(job_id=job.number, success=True) for job in ended]

    def make(self) -> None:
        """Make the copies behind what has been computed."""
        if READS:
            for job in [job for job in self.jobs if job.after <= self.computed and job not in self.made]:
                self.made.append(job)
                self.copy(job)

    def copy(self, job: Copy) -> None:
        for block, chunk, number in offloaded_blocks(job.device, job.host, CHUNK_BLOCKS):
            if job.to_host:
                self.host[chunk, number] = {key[1]: kv for key, kv in self.memory.kv.items() if key[0] == block}
            else:
                self.memory.kv.update({(block, at): kv for at, kv in self.host.get((chunk, number), {}).items()})

    def launch(self) -> None:
        self.launched += 1

    def wait(self, job_ids: Any) -> None: ...

    def shutdown(self) -> None: ...
