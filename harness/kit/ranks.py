"""Ranks of one engine in one process, in lock-step: one runs at a time, up to a collective that waits for another.

A rank is a greenlet, so the order in which ranks run is the same in each run.  What a release keeps for its whole
process belongs to the rank that runs: `globals` name it.
"""

import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet
from msgspec.structs import replace

from swarden.harness.core.event_log import EventLog
from swarden.harness.core.ops import Abort, Inject, Op, Submit
from swarden.harness.core.system import System
from swarden.harness.kit.lockstep import LockstepThread
from swarden.invariants.view import Snapshot

ResultT = TypeVar("ResultT")
CONSENSUS = "consensus"


class CollectiveFailed(Exception):
    """A rank waits for ever in a collective, or two ranks of a group have entered different ones, or do not agree."""


class Call(NamedTuple):
    """A collective as a rank enters it: its name with the operation, the form of its data, its place in the code."""

    name: str
    form: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} of {self.form} at {self.place}"


class Meeting:
    """One collective of a group: the call and the data of each rank that has entered it; so many have `left` it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.left = 0
        self.calls: dict[int, Call] = {}
        self.data: dict[int, Any] = {}

    @property
    def is_complete(self) -> bool:
        return len(self.calls) == self._size

    def __str__(self) -> str:
        return "; ".join(f"rank {rank} is in {call}" for rank, call in sorted(self.calls.items()))


class Ranks:
    """The ranks of an engine; `rank` is the one that runs.

    `globals` are pairs of an object and the name of an attribute that has a value of its own in each rank.
    """

    current: ClassVar["Ranks | None"] = None

    def __init__(self, size: int, global_values: Iterable[tuple[Any, str]]) -> None:
        self.size, self.rank = size, 0
        self._globals = [*global_values]
        self._values = [self._read() for _ in range(size)]
        self._contexts = [copy_context() for _ in range(size)]
        self._main = getcurrent()
        self._waits_in: dict[int, Meeting] = {}
        self._meetings: defaultdict[str, dict[int, Meeting]] = defaultdict(dict)
        self._groups = Counter[int]()
        self._entered: Counter[tuple[str, int]] = Counter()
        self._errors: list[Exception] = []

    @classmethod
    def running(cls) -> int:
        """The rank that runs; 0 in an engine that has one."""
        return 0 if cls.current is None else cls.current.rank

    def run(self, acts: Sequence[Callable[[], ResultT]]) -> "list[Future[ResultT]]":
        """Let each rank act; returns the outcomes.  The error of one rank is that of all: the others cannot go on."""
        self._errors.clear()
        outcomes = [Future[ResultT]() for _ in acts]
        before, Ranks.current, self._main = Ranks.current, self, getcurrent()
        alone, LockstepThread.let_others_go_on = LockstepThread.let_others_go_on, self.let_others_go_on
        running = {rank: greenlet(partial(self._act, outcomes[rank], act)) for rank, act in enumerate(acts)}
        for rank, acting in running.items():
            acting.gr_context = self._contexts[rank]
        try:
            while running:
                ready = [rank for rank in running if rank not in self._waits_in or self._waits_in[rank].is_complete]
                for rank in ready or [*running]:
                    waited_for = self._waits_in.pop(rank, None)
                    self._switch(running[rank], rank, waited_for if not ready else None)
                    if running[rank].dead:
                        del running[rank]
        finally:
            Ranks.current, LockstepThread.let_others_go_on = before, alone
        own = [error for error in self._errors if not isinstance(error, CollectiveFailed)]
        if not self._errors and (unshared := [*self._meetings[CONSENSUS].values()]):
            own = [CollectiveFailed(f"{unshared[0]}; the others have ended their step")]
        if own:
            outcomes = [Future()] * len(acts)
            outcomes[0].set_exception(own[0])
        return outcomes

    def meet(self, group: str, name: str, form: str, data: Any) -> list[Any]:
        """Enter a collective of a group; returns the data of all ranks when all have entered it.

        Raises CollectiveFailed if a rank enters another collective, or if this one waits and no rank can go on.
        """
        rank, number, meeting = self._enter(group, Call(name, form, _place()), data)
        if (thread := LockstepThread.running) is not None:
            thread.wait_until(lambda: meeting.is_complete)
        while not meeting.is_complete:
            self._waits_in[rank] = meeting
            self._main.switch()
        self._leave(group, number, meeting)
        return [meeting.data[rank] for rank in sorted(meeting.data)]

    def agree(self, what: str) -> None:
        """Note a decision that all ranks make in the same order, without waiting; CollectiveFailed if they differ."""
        _, number, meeting = self._enter(CONSENSUS, Call("the decision", what, _place()), None)
        self._leave(CONSENSUS, number, meeting)

    def leave(self, group: "Group", ranks: Iterable[int]) -> None:
        """These ranks do not enter the collectives of a group in which others wait now: those get an error."""
        for meeting in self._meetings[group.name].values():
            for rank in ranks:
                meeting.calls.setdefault(rank, Call("no collective", "any kind", "the end of its work"))

    def let_others_go_on(self) -> None:
        """Let each other rank run once, as far as it comes."""
        self._main.switch()

    def new_group(self) -> "Group":
        """A further group of all ranks; each of them has to make it."""
        self._groups[self.rank] += 1
        return Group(f"group {self._groups[self.rank]}", self.size)

    def _enter(self, group: str, call: Call, data: Any) -> tuple[int, int, Meeting]:
        number = self._entered[group, self.rank]
        self._entered[group, self.rank] += 1
        meeting = self._meetings[group].setdefault(number, Meeting(self.size))
        meeting.calls[self.rank], meeting.data[self.rank] = call, data
        return self.rank, number, meeting

    def _leave(self, group: str, number: int, meeting: Meeting) -> None:
        meeting.left += 1
        if meeting.left == self.size:
            del self._meetings[group][number]
        if len({call[:2] for call in meeting.calls.values()}) > 1:
            raise CollectiveFailed(f"the ranks of {group} differ: {meeting}")

    def _act(self, outcome: "Future[ResultT]", act: Callable[[], ResultT]) -> None:
        try:
            outcome.set_result(act())
        except Exception as error:
            outcome.set_exception(error)
            self._errors.append(error)

    def _switch(self, to: greenlet, rank: int, endless: Meeting | None) -> None:
        """Let a rank go on; one that waits in an `endless` meeting gets an error there."""
        outside = self._read()
        self._write(outside, self._values[rank])
        self.rank = rank
        try:
            if endless is not None:
                to.throw(CollectiveFailed(f"rank {rank} waits for ever: {endless}; the others have ended their step"))
            else:
                to.switch()
        finally:
            self._values[rank] = self._read()
            self._write(self._values[rank], outside)

    def _read(self) -> list[Any]:
        """The function that traces, which is one of each rank, too, and the globals."""
        return [sys.gettrace(), *[getattr(owner, name) for owner, name in self._globals]]

    def _write(self, before: Sequence[Any], values: Sequence[Any]) -> None:
        """Set those that differ: to set an attribute of a class is slow."""
        sys.settrace(values[0])
        for (owner, name), old, value in zip(self._globals, before[1:], values[1:], strict=True):
            if old is not value:
                setattr(owner, name, value)


class RankSystem:
    """One rank as a system: when the first one is called, all act together; each shows its own state and events.

    `shared` has the outcomes of the last call, for all ranks of the engine.
    """

    def __init__(self, ranks: Ranks, systems: Sequence[System], rank: int, shared: list[Any]) -> None:
        self._ranks, self._systems, self._rank, self._own = ranks, systems, rank, systems[rank]
        self._outcomes = shared
        self.reference = systems[rank].reference

    def addressed(self, op: Op) -> tuple[int | None, Op]:
        """The rank that an op is for, None for all, and the op as it gets it."""
        return (op.rank if isinstance(op, Inject) else None), op

    @property
    def steps_without_forward(self) -> int:
        """The fewest of all ranks: what happens to one rank, such as a fault, holds up the others."""
        return min(system.steps_without_forward for system in self._systems)

    @property
    def log(self) -> EventLog:
        return self._own.log

    def do(self, op: Op) -> bool:
        only, op = self.addressed(op)
        chosen = self._systems if only is None else self._systems[only : only + 1]
        return bool(self._together(lambda system: system in chosen and system.do(op)))

    @property
    def has_work(self) -> bool:
        return self._own.has_work

    def heal(self) -> None:
        self._together(lambda system: system.heal())

    def clear(self) -> None:
        self._together(lambda system: system.clear())

    @property
    def drain_bound(self) -> int:
        return self._own.drain_bound

    def capture(self) -> Snapshot:
        return self._own.capture()

    def take_events(self) -> list[NamedTuple]:
        return self._own.take_events()

    def _together(self, act: Callable[[System], ResultT]) -> ResultT:
        if self._rank == 0:
            self._outcomes[:] = self._ranks.run([partial(act, system) for system in self._systems])
        result: ResultT = self._outcomes[self._rank].result(timeout=0)
        return result


class DispatchedSystem(RankSystem):
    """A rank with requests of its own: the ranks get them in turn."""

    _num_submitted = 0

    def addressed(self, op: Op) -> tuple[int | None, Op]:
        match op:
            case Submit():
                self._num_submitted += 1
                return (self._num_submitted - 1) % len(self._systems), op
            case Abort():
                number, rank = divmod(op.request, len(self._systems))
                return rank, replace(op, request=number)
        return super().addressed(op)

    @property
    def steps_without_forward(self) -> int:
        return self._own.steps_without_forward


def in_lockstep(ranks: Ranks, systems: Sequence[System], kind: type[RankSystem] = RankSystem) -> list[System]:
    """The ranks of an engine as systems; the first one comes first in each op."""
    outcomes: list[Any] = []
    return [kind(ranks, systems, rank, outcomes) for rank in range(len(systems))]


def _place() -> str:
    """Where the engine's code enters a collective: the innermost frame outside of this package and of torch."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("swarden.", "torch.")):
            return f"{module}:{line}"
    return "?"


class Group(NamedTuple):
    """A stand-in for a process group, of all ranks or of one alone."""

    name: str
    size: int

    def meet(self, name: str, form: str, data: Any) -> list[Any]:
        """The data of all ranks of the group, when all have entered the collective."""
        return [data] if self.size == 1 else _ranks().meet(self.name, name, form, data)


def replace_collectives(distributed: Any) -> None:
    """Let the functions of torch.distributed serve a Group, too; with another group they are as before."""
    stand_ins: Mapping[str, Callable[..., Any]] = {
        "all_reduce": _all_reduce,
        "all_gather_object": _all_gather_object,
        **dict.fromkeys(("all_gather_into_tensor", "all_gather_single"), _all_gather_into_tensor),
        "gather": _gather,
        "broadcast": _broadcast,
        "broadcast_object_list": _broadcast_object_list,
        "barrier": _barrier,
        "get_world_size": lambda group: group.size,
        "get_rank": lambda group: Ranks.running(),
        "get_global_rank": lambda group, rank: rank,
        "get_process_group_ranks": lambda group: [*range(group.size)],
    }
    for name, stand_in in stand_ins.items():
        if hasattr(distributed, name):
            setattr(distributed, name, partial(_dispatched, stand_in, getattr(distributed, name)))


def _dispatched(stand_in: Callable[..., Any], original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    given = [argument for argument in (*args, *options.values()) if isinstance(argument, Group)]
    return (stand_in if given else original)(*args, **options)


def _ranks() -> Ranks:
    assert Ranks.current is not None, "a collective outside of the ranks"
    return Ranks.current


def _all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
    kind = str(op).rpartition(".")[2].lower()
    data = group.meet(f"all_reduce {kind}", _form_of(tensor), tensor.clone())
    reduced = data[0].clone()
    for other in data[1:]:
        reduced = REDUCE[kind](reduced, other)
    tensor.copy_(reduced)


REDUCE: Mapping[str, Callable[[Any, Any], Any]] = {
    "min": lambda first, other: first.minimum(other),
    "max": lambda first, other: first.maximum(other),
    "sum": lambda first, other: first + other,
}


def _all_gather_object(gathered: list[Any], own: Any, group: Any = None) -> None:
    gathered[:] = group.meet("all_gather_object", "", own)


def _form_of(tensor: Any) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _all_gather_into_tensor(gathered: Any, own: Any, group: Any = None) -> None:
    rows = group.meet("all_gather", _form_of(own), own.clone())
    for row, place in zip(rows, gathered.view(group.size, -1), strict=True):
        place.copy_(row.flatten())


def _gather(own: Any, gather_list: Sequence[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    rows = group.meet(f"gather to {dst}", _form_of(own), own.clone())
    for row, place in zip(rows, gather_list or rows, strict=True):
        place.copy_(row)


def _broadcast(tensor: Any, src: int = 0, group: Any = None) -> None:
    tensor.copy_(group.meet(f"broadcast of {src}", _form_of(tensor), tensor.clone())[src])


def _broadcast_object_list(objects: list[Any], src: int | None = None, group: Any = None, **_: Any) -> None:
    objects[:] = group.meet("broadcast_object_list", f"[{len(objects)}]", objects)[src or 0]


def _barrier(group: Any = None, **_: Any) -> None:
    group.meet("barrier", "", None)
