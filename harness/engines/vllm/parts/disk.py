"""Second tier: files behind the CPU memory of the offloading connector.

Real: from 0.26.0: `TieringOffloadingManager` over the file system tier, with its look-ups, jobs, queues, reads and
writes.
Stand-in: files in memory behind `os`; thread work is done at the end of a step. Faults: `disk.fails`, `disk.full`,
`disk.late`.
Shows: a wrong file, jobs that never end.
"""

import errno
import mmap
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import OFFLOADING, children_of, connectors_of
from swarden.harness.engines.vllm.parts.part import Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.kit.launch import table
from swarden.harness.kit.part import Part
from swarden.harness.kit.settings import Drawn, IfReleaseHas, PartOf

DISK_FAILS, DISK_FULL, DISK_LATE = "disk.fails", "disk.full", "disk.late"
FAULTS = {
    DISK_FAILS: "a file of the second tier is cut short, and the read of it fails",
    DISK_FULL: "a write of the second tier fails",
    DISK_LATE: "a read or a write of the second tier takes four more steps",
}
MAX_CHUNKS = 1 << 12  # of CPU memory before the tier: each is bytes, as the tier reads them
NAME, SPEC = "SwardenDisk", "TieringOffloadingSpec"
PACKAGE = "vllm.v1.kv_offload.tiering"
IO_MODULES = (f"{PACKAGE}.fs.io", f"{PACKAGE}.fs.manager")  # they call the functions of `os`
STEPS, MORE_STEPS = 2, 4  # until a job of the tier has ended
TAG_BYTES = 8


class SecondTier(VllmPart, frozen=True):
    """With `has_disk` a file system is the second tier behind the CPU memory of the offloading connector."""

    has_disk: Annotated[bool, PartOf("cpu_chunks"), Drawn((False, True)), IfReleaseHas("disk")] = False

    server_need = "second tier"
    waits = True
    launch_table = table(has_disk=lambda line: connectors_of(line).get(OFFLOADING, {}).get("spec_name") == SPEC)

    def check(self, config: VllmConfig) -> None:
        count = config.offload.cpu_chunks
        if self.is_on and count > MAX_CHUNKS:
            raise InvalidConfig(f"cpu_chunks is {count} with has_disk, want at most {MAX_CHUNKS}")

    def is_in(self, config: VllmConfig) -> bool:
        return self.is_on and config.offload.is_on

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        return FAULTS

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        """Of both tiers, with the stand-ins in the place of the release's classes."""
        kind = type(NAME, (DiskTier, release.code("FileSystemTierManager")), {})
        release.code("SecondaryTierFactory")._registry[NAME] = lambda: kind
        vars(sys.modules[f"{PACKAGE}.spec"])["SharedOffloadRegion"] = SharedMemory
        tier = {"type": NAME, "root_dir": "", "n_read_threads": 0, "n_write_threads": 0}
        return {OFFLOADING: {"spec_name": SPEC, "secondary_tiers": [tier]}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        side: Any = engine.runner.loads  # that of CPU memory
        side.tiers = tiers = Tiers(children_of(engine.built.scheduler.connector)[0])
        tiers.disk.files.faults = engine.faults
        side.copier.host = tiers.disk.rows(side.copier.blocks_per_chunk, engine.runner.device.memory.unit_size)
        return ()


class Disk:
    """The functions of `os` that the tier calls, on files in memory; `faults` are those of its reads and writes."""

    O_CREAT, O_EXCL, O_RDONLY, O_TRUNC, O_WRONLY = os.O_CREAT, os.O_EXCL, os.O_RDONLY, os.O_TRUNC, os.O_WRONLY

    def __init__(self) -> None:
        self.faults = FaultPlan({})
        self._files: dict[str, bytes] = {}
        self._open: dict[int, str] = {}  # the paths by descriptor
        self._opened = 0
        self.path = SimpleNamespace(exists=self._exists, dirname=os.path.dirname, join=os.path.join)

    def serve(self) -> None:
        """Let the modules of the tier use this disk from now on."""
        for name in IO_MODULES:
            vars(sys.modules[name])["os"] = self

    def makedirs(self, path: str, exist_ok: bool = False) -> None: ...

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        if not flags & os.O_CREAT and path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if flags & os.O_EXCL and path in self._files:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        self._files.setdefault(path, b"")
        self._opened += 1
        self._open[self._opened] = path
        return self._opened

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def write(self, descriptor: int, content: memoryview) -> int:
        if self.fires(DISK_FULL):
            raise OSError(errno.ENOSPC, "no space is left", self._open[descriptor])
        self._files[self._open[descriptor]] = bytes(content)
        return len(content)

    def readv(self, descriptor: int, buffers: Sequence[memoryview]) -> int:
        [buffer] = buffers
        content = self._files[self._open[descriptor]]
        if self.fires(DISK_FAILS):
            content = content[: len(content) // 2]
        buffer[: len(content)] = content
        return len(content)

    def replace(self, source: str, target: str) -> None:
        self._files[target] = self._files.pop(source)

    def remove(self, path: str) -> None:
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)

    def _exists(self, path: str) -> bool:
        return path in self._files or not path.endswith(".bin")  # directories, and the file with the configuration

    def fires(self, fault: str) -> bool:
        return fault in self.faults.known and self.faults.fires(fault)


class NoTaskLeft(BaseException):
    """Ends the loop of a thread of the release, which catches each Exception of a task."""


class DiskTier:
    """The file system tier without threads, as a mixin for the release's class.

    At the end of a step it does what its threads would have done by then.  Every second batch of look-ups is answered a
    step later, every second job ends two steps later.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.files = Disk()
        self.files.serve()
        super().__init__(*args, **kwargs)
        self._lookup_manager: Any
        self._pool: Any
        self._lookup_manager.shutdown()  # its thread has ended
        self._steps = self._begun = 0
        self._left: dict[int, int] = {}  # steps by job

    def rows(self, chunk_blocks: int, unit_size: int) -> "TagRows":
        """The CPU memory before this tier."""
        return TagRows(self._primary_kv_view, chunk_blocks, unit_size)  # type: ignore[attr-defined]  # of that class

    def on_schedule_end(self, context: Any) -> None:
        super().on_schedule_end(context)  # type: ignore[misc]  # of the release's class
        self._steps += 1
        if self._steps % 2:
            self._lookup_manager._lookup_queue.put(None)
            self.files.serve()
            self._lookup_manager._worker()
        self._count_step()

    def drain_jobs(self) -> None:
        self._left.clear()
        self._work([*self._pool._load_q, *self._pool._store_q])
        super().drain_jobs()  # type: ignore[misc]  # of the release's class

    def _count_step(self) -> None:
        tasks = [*self._pool._load_q, *self._pool._store_q]
        for _, job in tasks:
            if job.job_id not in self._left:
                self._begun += 1
                is_late = self.files.fires(DISK_LATE)
                self._left[job.job_id] = STEPS * (self._begun % 2 == 0) + MORE_STEPS * is_late
        due = {job for job, steps in self._left.items() if steps == 0}
        self._left = {job: steps - 1 for job, steps in self._left.items() if steps}
        self._work([task for task in tasks if task[1].job_id in due])
        self._pool._store_q = deque([task for task in tasks if task[1].job_id not in due])

    def _work(self, tasks: Sequence[Any]) -> None:
        """Do these tasks of the pool as one of its threads."""

        def end() -> None:
            raise NoTaskLeft

        self._pool._load_q, self._pool._store_q = deque([*tasks, (end, None)]), deque()
        self.files.serve()
        with suppress(NoTaskLeft):
            self._pool._worker(True)


class SharedMemory:
    """The CPU memory that the processes of a server share, as one row of bytes per chunk."""

    def __init__(self, **sizes: Any) -> None:
        count = sizes.get("num_chunks", sizes.get("num_blocks", 0))
        size = sizes.get("kv_bytes_per_chunk", sizes.get("kv_bytes_per_block", 0))
        self._rows = memoryview(mmap.mmap(-1, count * size)).cast("B", shape=[count, size])

    def create_kv_memoryview(self) -> memoryview:
        return self._rows

    def cleanup(self) -> None: ...


class TagRows:
    """The blocks of tags in this memory, by chunk and by the number of the block there."""

    def __init__(self, rows: memoryview, chunk_blocks: int, unit_size: int) -> None:
        assert rows.strides is not None, "the memory has no rows"
        self._tags, self._size = rows.cast("B").cast("q"), unit_size
        self._chunk = rows.strides[0] // TAG_BYTES
        self._block = self._chunk // chunk_blocks

    def __setitem__(self, place: tuple[int, int], tags: Sequence[int]) -> None:
        for index, tag in enumerate(tags, self._first(place)):
            self._tags[index] = tag

    def get(self, place: tuple[int, int], default: Sequence[int]) -> Sequence[int]:
        first = self._first(place)
        return self._tags[first : first + self._size].tolist()

    def _first(self, place: tuple[int, int]) -> int:
        chunk, number = place
        return chunk * self._chunk + number * self._block


class Tiers:
    """The scheduler's side of both tiers; the second one is the `disk`."""

    def __init__(self, connector: Any) -> None:
        self._manager = connector.connector_scheduler.manager
        self.disk: DiskTier
        [self.disk] = self._manager.secondary_tiers

    def __bool__(self) -> bool:
        """Whether a request may wait for the second tier, such as for the answer of a look-up."""
        look_ups = self.disk._lookup_manager._lookup_state.values()
        return any(look_up.result is None for look_up in look_ups) or bool(self._manager.has_pending_work())
