"""The recording of the calls to an engine: the newest ops, kept as entries from which an op-log is built.

It has prompts with renumbered tokens, with the tokens themselves, or nothing is written:

    SWARDEN_STRICT_RECORD=renumbered|verbatim|off     unset or empty is renumbered

A renumbered token stands for the whole prefix that ends with it.  So the prompts share the prefixes that they shared,
and nothing else of them is left: neither the vocabulary nor which tokens are equal or frequent.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import OWNER_ONLY
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.limits import MAX_STEPS_PER_OP, MAX_TOKENS
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import FIRST_TOKEN, Abort, CloseSession, Inject, Op, OpenSession, Step, Submit, Turn

VARIABLE = "SWARDEN_STRICT_RECORD"
FOLDER_VARIABLE = "SWARDEN_STRICT_OUT"  # the folder for op-logs; unset or empty is .swarden/strict
RENUMBERED, VERBATIM, OFF = "renumbered", "verbatim", "off"


class RecordedSubmit(NamedTuple):
    """A submitted request, with the id that the engine assigned."""

    request_id: int
    op: Submit


class RecordedTurn(NamedTuple):
    """A turn of a session, with both ids. The ordinal of the session is computed when the op-log is built."""

    request_id: int
    session: int
    op: Turn


class RecordedAbort(NamedTuple):
    """An abort. The ordinal of its request is computed when the op-log is built."""

    request_id: int


class RecordedOpen(NamedTuple):
    """An opened session, with the id that the engine assigned."""

    session: int
    op: OpenSession


class RecordedClose(NamedTuple):
    """A session that a client closed."""

    session: int


@dataclass(slots=True)
class Steps:
    """Consecutive steps."""

    count: int = 1
    ended: list[int] = field(default_factory=list)  # requests whose end was streamed
    expired: list[int] = field(default_factory=list)  # sessions that timed out, in the last step
    faults: dict[str, Inject] = field(default_factory=dict)  # that fired, in the first step
    collected: int = 0  # passes that completed or were late


Entry = RecordedSubmit | RecordedTurn | RecordedAbort | RecordedOpen | RecordedClose | Steps | Op


class Recording:
    """Keeps the newest entries: at most `max_ops`, and at most MAX_TOKENS tokens of prompts.

    Depending on `mode`, the tokens are renumbered in the file, or nothing is kept and written.
    """

    def __init__(self, header: Callable[[], Header], *, max_ops: int, mode: str) -> None:
        self.entries: deque[Entry] = deque()
        self.step: Steps | None = None  # the newest one, kept apart until `begin`
        self.lost: Counter[str] = Counter()  # by name, the calls and faults that no op can replay
        self.num_dropped = 0  # entries
        self._header, self._max_ops, self.mode = header, max_ops, mode
        self._num_tokens = 0

    def begin(self) -> None:
        """Append the newest step, so that another call can follow it."""
        for entry in self._newest:
            self.append(entry)
        self.step = None

    def append(self, entry: Entry) -> None:
        if self.mode == OFF:
            return
        last = self.entries[-1] if self.entries else None
        if isinstance(entry, Steps) and isinstance(last, Steps) and last.count < MAX_STEPS_PER_OP and not last.expired:
            last.count += 1
            last.ended += entry.ended
            last.expired += entry.expired
            return
        self.entries.append(entry)
        self._num_tokens += _num_tokens(entry)
        while len(self.entries) >= self._max_ops or self._num_tokens > MAX_TOKENS:  # one more is the step in progress
            self._num_tokens -= _num_tokens(self.entries.popleft())
            self.num_dropped += 1

    def clear(self) -> None:
        """Forget everything but the newest step, because the engine is empty again."""
        self.entries.clear()
        self.lost.clear()
        self.num_dropped = self._num_tokens = 0

    @property
    def truncated(self) -> str:
        """The calls and ops that a replay lacks; empty if the log is complete."""
        lost = [f"{count} {kind}" for kind, count in sorted(self.lost.items())]
        if self.num_dropped:
            lost.insert(0, f"the first {self.num_dropped} ops and their effects on the engine")
        return "; ".join(lost)

    def ops(self) -> list[Op]:
        """The recorded ops so far."""
        ops: list[Op] = []
        alive: list[int] = []
        opened: list[int] = []
        for entry in [*self.entries, *self._newest]:
            match entry:
                case RecordedSubmit():
                    ops.append(entry.op)
                    alive.append(entry.request_id)
                case RecordedTurn() if entry.session in opened:
                    ops.append(structs.replace(entry.op, session=opened.index(entry.session)))
                    alive.append(entry.request_id)
                case RecordedOpen():
                    ops.append(entry.op)
                    opened.append(entry.session)
                case RecordedClose() if entry.session in opened:
                    ops.append(_closing(entry.session, opened))
                case RecordedAbort() if entry.request_id in alive:
                    ops.append(Abort(request=alive.index(entry.request_id)))
                case Steps():
                    last = ops[-1] if ops else None
                    if isinstance(last, Step) and last.count + entry.count <= MAX_STEPS_PER_OP:
                        ops[-1] = Step(count=last.count + entry.count)
                    else:
                        ops.append(Step(count=entry.count))
                    alive = [request_id for request_id in alive if request_id not in entry.ended]
                    ops += [_closing(session, opened) for session in entry.expired if session in opened]
                case Op():
                    ops.append(entry)
        return ops

    def save(self, fingerprint: str, out: Path) -> Path:
        """Write the log below `out` under a unique name, for its owner only; raises OpLogError if the write fails."""
        ops = renumbered(self.ops()) if self.mode == RENUMBERED else self.ops()
        faults = sorted({op.fault for op in ops if isinstance(op, Inject) and op.fault})
        log = OpLog(structs.replace(self._header(), faults=faults, truncated=self.truncated), ops)
        path = out / f"{slug(fingerprint)}-{hashlib.sha256(log.to_bytes()).hexdigest()[:8]}.oplog"
        log.save(path, mode=OWNER_ONLY)
        return path

    @property
    def _newest(self) -> Sequence[Entry]:
        """The newest step, after the faults that fired in it."""
        return [*self.step.faults.values(), self.step] if self.step is not None else ()


def _num_tokens(entry: Entry) -> int:
    return len(entry.op.tokens or ()) if isinstance(entry, (RecordedSubmit, RecordedTurn)) else 0


def _closing(session: int, opened: list[int]) -> CloseSession:
    """The op that closes a session, which is removed from `opened`."""
    place = opened.index(session)
    del opened[place]
    return CloseSession(session=place)


def record_mode(environment: Mapping[str, str]) -> str:
    """The mode in the environment; raises UsageError for an unknown one."""
    mode = environment.get(VARIABLE) or RENUMBERED
    if mode not in (RENUMBERED, VERBATIM, OFF):
        raise UsageError(f"{VARIABLE}: {mode!r} is not one of {RENUMBERED}, {VERBATIM}, {OFF}")
    return mode


def renumbered(ops: Sequence[Op]) -> list[Op]:
    """The ops with other tokens in their prompts, none of which a stand-in for a model generates.

    Stop tokens stay: they are compared with what the model generates.
    """
    numbers: dict[tuple[int, int], int] = {}  # by the number of the preceding prefix, and the token
    changed = []
    for op in ops:
        if isinstance(op, Submit | Turn) and op.tokens is not None:
            prefix, tokens = 0, []
            for token in op.tokens:
                prefix = numbers.setdefault((prefix, token), FIRST_TOKEN + len(numbers))
                tokens.append(prefix)
            op = structs.replace(op, tokens=tuple(tokens))
        changed.append(op)
    return changed
