"""Stand-ins for the streams and events of a GPU.

A stream makes its copies in order, each at the last moment at which a GPU may make it: when the engine or another
stream waits for the copy, or the engine asks whether it has ended.  Streams and events also carry the last launched
pass that they wait for.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class StreamCopy(NamedTuple):
    """A copy on a stream: makes it, and whether it stays in flight although the engine asks for its end."""

    make: Callable[[], None]
    stays: Callable[[], bool]


class Stream:
    """A stand-in for a stream of a GPU: the copies that it has still to make, in order.

    A copy that is put on it begins when the passes up to launch `behind` have ended.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._waiting: deque[StreamCopy] = deque()
        self.num_done = self.num_made = 0
        self.behind = 0

    @property
    def end(self) -> int:
        """The number of copies that were ever put on this stream."""
        return self.num_done + len(self._waiting)

    def put(self, copy: StreamCopy) -> None:
        self._waiting.append(copy)

    def has_done(self, end: int) -> bool:
        """Make the first `end` copies; False if one of them stays in flight."""
        while self.num_done < end and not self._waiting[0].stays():
            self._make_next()
        return self.num_done >= end

    def make(self, end: int) -> None:
        """Make the first `end` copies."""
        while self.num_done < end:
            self._make_next()

    def reach(self, end: int) -> None:
        """Make the first `end` copies for another stream; the engine does not know yet that they have ended."""
        while self.num_made < end:
            self._waiting[self.num_made - self.num_done].make()
            self.num_made += 1

    def synchronize(self) -> None:
        self.make(self.end)

    def record_event(self, event: "StreamEvent") -> None:
        event.record(self)

    def wait_event(self, event: "StreamEvent") -> None:
        event.reach()

    def wait_stream(self, other: "Stream") -> None:
        self.behind = max(self.behind, other.behind)

    def _make_next(self) -> None:
        self.reach(self.num_done + 1)
        self._waiting.popleft()
        self.num_done += 1


class StreamEvent:
    """A stand-in for an event of a GPU: it has happened when its stream has made the copies before it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._stream, self._end, self._behind = Stream(), 0, 0

    def record(self, stream: Stream | None = None) -> None:
        self._stream = stream or Devices.current
        self._end, self._behind = self._stream.end, self._stream.behind

    def query(self) -> bool:
        return self._stream.has_done(self._end)

    def synchronize(self) -> None:
        self._stream.make(self._end)

    def reach(self) -> None:
        self._stream.reach(self._end)

    def wait(self, stream: Stream) -> None:
        """Let a stream wait for the passes that this event waits for."""
        stream.behind = max(stream.behind, self._behind)

    def elapsed_time(self, other: "StreamEvent") -> float:
        return 0.0


class Devices:
    """A stand-in for the module of a device, such as torch.cuda."""

    current = Stream()

    @staticmethod
    def current_stream() -> Stream:
        return Devices.current

    @staticmethod
    @contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        before, Devices.current = Devices.current, stream
        try:
            yield
        finally:
            Devices.current = before


for name, kind in (("Stream", Stream), ("Event", StreamEvent)):
    setattr(Devices, name, kind)
