"""The host store of a machine: copies by the CPU, or on a separate CUDA stream."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from swarden.engine_under_test.ports import Acknowledgement, PageCopy


@dataclass(slots=True)
class CopyUnderWay:
    """A job on the stream: its completion event, and the tensors that must live until then."""

    job: int
    done: torch.cuda.Event
    kept: list[torch.Tensor] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return bool(self.done.query())  # type: ignore[no-untyped-call]  # torch has no annotation there


class HostCopier:
    """Copies at once if both sides are in host memory, asynchronously if one side is on a GPU."""

    def __init__(self) -> None:
        self._done: list[Acknowledgement] = []
        self._under_way: list[CopyUnderWay] = []
        self._stream: torch.cuda.Stream | None = None

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        gpu = next((side.device for one in copies for side in (one.source, one.target) if side.is_cuda), None)
        if gpu is None:
            for one in copies:
                source, target = (
                    torch.tensor(pages, dtype=torch.int64) for pages in (one.source_pages, one.target_pages)
                )
                one.target.index_copy_(one.page_dim, target, one.source.index_select(one.page_dim, source))
            self._done.append(Acknowledgement(job))
        else:
            self._under_way.append(self._begin_on(gpu, job, copies))

    def acknowledged(self) -> list[Acknowledgement]:
        ended = [one for one in self._under_way if one.is_done]
        self._under_way = [one for one in self._under_way if one not in ended]
        done, self._done = self._done, []
        return done + [Acknowledgement(one.job) for one in ended]

    def wait(self) -> None:
        for one in self._under_way:
            one.done.synchronize()

    def _begin_on(self, gpu: torch.device, job: int, copies: Sequence[PageCopy]) -> CopyUnderWay:
        """Copy page by page on the separate stream, after all work launched before; the host pages are pinned."""
        self._stream = self._stream or torch.cuda.Stream(gpu)  # type: ignore[no-untyped-call]  # nor here
        self._stream.wait_stream(torch.cuda.current_stream(gpu))
        under_way = CopyUnderWay(job, torch.cuda.Event())  # type: ignore[no-untyped-call]  # nor here
        with torch.cuda.stream(self._stream):
            for one in copies:
                for source_page, target_page in zip(one.source_pages, one.target_pages, strict=True):
                    source = one.source.select(one.page_dim, source_page)
                    one.target.select(one.page_dim, target_page).copy_(source, non_blocking=True)
                    under_way.kept.append(source)
            under_way.done.record(self._stream)
        return under_way
