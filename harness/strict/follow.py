"""Follows a running engine: wraps the methods of its scheduler class, and checks the steps of each scheduler."""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.releases import in_environment
from swarden.harness.kit.calls import Wrap
from swarden.harness.strict import status
from swarden.harness.strict.audit import Audit
from swarden.harness.strict.checker import Level, StrictChecker, census_of
from swarden.harness.strict.live import Live, MemoryViolation
from swarden.harness.strict.recorder import FlightRecorder
from swarden.harness.strict.sums import Sums
from swarden.invariants.events import AbortAsked, StepBegan, StepEnded

LOGGER = logging.getLogger("swarden.strict")
MAX_OPS = 100_000  # of an op-log
BOUNDARY = "swarden_boundary"  # attribute of a scheduler
# The holders of another engine are known at the end of a step only, so an audit adds up its terms, too.
LEVELS: Mapping[str, Level] = {
    "sums": lambda live: [Sums(live)],
    "audit": lambda live: [Audit(live), Sums(live)],
    "census": census_of,
}


class UnknownScheduler(UsageError):
    """A scheduler whose memory the check does not know; the text is the reason."""


class Attachment:
    """The check of one scheduler.  Its events wait until a step begins or ends, and are then reported together.

    A step begins after the scheduler has received the calls of clients.  `live` describes the scheduler.  Further
    methods of the server's objects are wrapped by `wrap`.
    """

    live: Live

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap
        self._events: deque[NamedTuple] = deque()
        self._has_inputs = False  # clients called since the last step
        self._is_in_step = False  # which began behind calls of clients

    def start(self, setting: Mapping[str, str]) -> None:
        """Begin the check at a level; raises UnknownScheduler if it cannot."""
        reports, folder = setting["on_violation"] == "log", Path(setting["out"])
        self._checker = StrictChecker(LEVELS[setting["level"]], reports=reports, folder=folder)
        self._checker.watch(self.live)

    def failed(self, error: Exception) -> None:
        """Note an error that the scheduler raised, which ends the scheduler."""
        if isinstance(error, MemoryViolation):
            return
        if not self._is_in_step:
            self._recorder.step_began(StepBegan(0))
        fingerprint = fingerprint_of_error(error, self.live.header().engine)
        saved = self._checker.reporter.save_log(fingerprint)
        LOGGER.error("swarden: the scheduler raised %s; %s", type(error).__name__, saved)

    @property
    def _recorder(self) -> FlightRecorder:
        return self._checker.recorder

    def _aborted(self, number: int) -> None:
        if not self._recorder.is_aborted(number):
            self._recorder.abort_asked(AbortAsked(number))

    def _notice(self, event: NamedTuple) -> None:
        self._events.append(event)

    def _begin_step(self) -> None:
        """Check the calls of clients that the scheduler has received since the last step."""
        self._has_inputs, self._is_in_step = False, True
        self._checker.notice_all(chain(self._take_events(), [StepBegan(0)]))

    def _end_step(self, early: Sequence[int] = (), *, in_step: bool = False) -> None:
        """Check the step.  Requests in `early` ended in it, but not by their length (`FlightRecorder.ended_early`)."""
        if not self._is_in_step:
            self._checker.notice(StepBegan(0))
        self._is_in_step = False
        self._recorder.ended_early(early, in_step=in_step)
        self._checker.notice_all(chain(self._take_events(), [StepEnded()]))

    def _take_events(self) -> Iterable[NamedTuple]:
        events = list(self._events)
        self._events.clear()
        return events


class Follow(NamedTuple):
    """What the check does around a call of a wrapped method: `before` gets the arguments, `after` gets the result.

    An error that leaves an `outermost` call is recorded.  The first call of a scheduler that `starts` attaches the
    check: before that call, or after it if it is the constructor.
    """

    before: Callable[[Any, Sequence[Any]], None] | None = None
    after: Callable[[Any, Any], None] | None = None
    outermost: bool = False
    starts: bool = False


class ServerCall:
    """A call of the server, which the check makes once; the server gets its result, or its error."""

    __slots__ = ("_method", "error", "is_made", "result")

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self.is_made, self.result = method, False, None
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.is_made = True
        try:
            self.result = self._method(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        return self.result


class Boundary:
    """The boundary between a server and the check of one of its schedulers.

    All code of the check runs within it.  An error of the check ends the check, and no call of the server: from then
    on these calls are made as if there were no check.
    """

    def __init__(self, package: str, setting: Mapping[str, str], attach: "Attach") -> None:
        self.attachment: Attachment | None = None
        self._package, self._setting, self._attach, self._is_ended = package, setting, attach, False

    def start(self, scheduler: Any, call: str) -> None:
        """Attach to a scheduler of the package of this environment; raises UsageError if that is not possible."""
        if self.attachment is not None:
            return
        package = in_environment(self._package)
        if package is None:
            raise UsageError(f"the folder of the {self._package} package is not on the path")
        attachment = self._attach(package.version, scheduler, call, self._wrap)
        attachment.start(self._setting)
        self.attachment = attachment
        status.attached(self._setting)

    def surround(self, method: Callable[..., Any], around: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
        """Make a call of the server within `around`, which gets it in place of the method; raises violations."""
        if self._is_ended:
            return method(*args, **kwargs)
        call = ServerCall(method)
        try:
            try:
                around(call, *args, **kwargs)
            except Exception as error:
                if error is call.error or isinstance(error, MemoryViolation):
                    raise
                if not self._is_ended:  # by a call within this one
                    self._end(error)
            if call.error is not None:
                raise call.error
            return call.result if call.is_made else method(*args, **kwargs)
        finally:
            call.error = None  # its traceback has this frame, and so the call: memory of the server would wait for gc

    def _wrap(self, owner: Any, name: str, around: Callable[..., None]) -> None:
        method = getattr(owner, name)
        setattr(owner, name, wraps(method)(partial(self.surround, method, around)))

    def _end(self, error: Exception) -> None:
        report = status.refused if self.attachment is None else status.ended
        self._is_ended, self.attachment = True, None
        reason, internal = (str(error), None) if isinstance(error, UsageError) else ("internal error of swarden", error)
        report(self._setting, reason, internal)


Attach = Callable[[str, Any, str, Wrap], Attachment]  # with the version, the scheduler and the call by which it starts


def wrap(kind: type, calls: Mapping[str, Follow], package: str, setting: Mapping[str, str], attach: Attach) -> None:
    """Wrap these methods of a scheduler class; if a method is missing, wrap none and name it."""
    if missing := [name for name in calls if not hasattr(kind, name)]:
        status.refused(setting, f"it has no {', '.join(missing)}")
        return

    for name, follow in calls.items():
        method = getattr(kind, name)
        make = partial(Boundary, package, setting, attach) if follow.starts else None
        setattr(kind, name, _bounded(method, _following(method, follow), make))


def numbering() -> Callable[[Hashable], int]:
    """Numbers keys from 1 in the order in which they are first seen; None is 0."""
    numbers: dict[Hashable, int] = {None: 0}
    return lambda key: numbers.setdefault(key, len(numbers))


def _bounded(
    original: Callable[..., Any], around: Callable[..., None], make: Callable[[], Boundary] | None
) -> Callable[..., Any]:
    """The method within the boundary of its scheduler, which is made by the first call that can make it."""

    @wraps(original)
    def method(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if make is not None and BOUNDARY not in vars(scheduler):
            setattr(scheduler, BOUNDARY, make())
        boundary = vars(scheduler).get(BOUNDARY)
        if boundary is None:
            return original(scheduler, *args, **kwargs)
        return boundary.surround(original, around, scheduler, *args, **kwargs)

    return method


def _following(original: Callable[..., Any], follow: Follow) -> Callable[..., None]:
    """What the check does around a call of this method."""
    name, is_constructor = original.__name__, original.__name__ == "__init__"
    parameters = signature(original)
    defaults = [parameter.default for parameter in parameters.parameters.values()][1:]

    def arguments(scheduler: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if not kwargs and Parameter.empty not in defaults[len(args) :]:  # a bind costs more than the check of a step
            return *args, *defaults[len(args) :]
        call = parameters.bind(scheduler, *args, **kwargs)
        call.apply_defaults()
        return tuple(call.arguments.values())[1:]

    def around(call: ServerCall, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        boundary = vars(scheduler)[BOUNDARY]
        if follow.starts and not is_constructor:
            boundary.start(scheduler, name)
        if follow.before is not None and boundary.attachment is not None:
            follow.before(boundary.attachment, arguments(scheduler, args, kwargs))
        try:
            call(scheduler, *args, **kwargs)
        finally:
            if follow.outermost and boundary.attachment is not None and isinstance(call.error, Exception):
                boundary.attachment.failed(call.error)
        if follow.after is not None and boundary.attachment is not None:
            follow.after(boundary.attachment, call.result)
        if follow.starts and is_constructor:
            boundary.start(scheduler, name)

    return around
