"""Follows a running engine: wraps the methods of its scheduler class, and checks the steps of each scheduler."""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.releases import in_environment
from swarden.harness.strict import status
from swarden.harness.strict.audit import Audit
from swarden.harness.strict.checker import Level, StrictChecker, census_of
from swarden.harness.strict.live import Live, MemoryViolation
from swarden.harness.strict.recorder import FlightRecorder
from swarden.harness.strict.sums import Sums
from swarden.invariants.events import AbortAsked, StepBegan, StepEnded

LOGGER = logging.getLogger("swarden.strict")
MAX_OPS = 100_000  # of an op-log
ATTRIBUTE = "swarden_attachment"  # of a scheduler; None if it is not checked
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

    A step begins after the scheduler has received the calls of clients.  `live` describes the scheduler.
    """

    live: Live

    def __init__(self) -> None:
        self._events: deque[NamedTuple] = deque()
        self._has_inputs = False  # clients called since the last step
        self._is_in_step = False  # which began behind calls of clients

    def start(self, setting: Mapping[str, str]) -> None:
        """Begin the check at a level; raises UnknownScheduler if it cannot."""
        reports, folder = setting["on_violation"] == "log", Path(setting["out"])
        self._checker = StrictChecker(LEVELS[setting["level"]], reports=reports, folder=folder)
        self._checker.watch(self.live)

    def detach(self) -> None:
        """End the check.  The pools stay wrapped, but nothing is reported any more."""
        self._events = deque(maxlen=0)

    def failed(self, error: Exception) -> None:
        """Note an error that the scheduler raised, which ends the scheduler."""
        if not self._is_in_step:
            self._recorder.step_began(StepBegan(0))
        fingerprint = fingerprint_of_error(error, self.live.header().engine)
        LOGGER.error("%s", self._checker.reporter.save_log(fingerprint))

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
    """The actions before a call, which gets the arguments in their order, and after it, which gets the result.

    An error that leaves an `outermost` call is recorded.  A call that `starts` is a scheduler's first: the check is
    attached before it, or after the constructor.
    """

    before: Callable[[Any, Sequence[Any]], None] | None = None
    after: Callable[[Any, Any], None] | None = None
    outermost: bool = False
    starts: bool = False


def wrap(kind: type, calls: Mapping[str, Follow], package: str, setting: Mapping[str, str], attach: "Attach") -> None:
    """Wrap these methods of a scheduler class; if a method is missing, wrap none and name it."""
    if missing := [name for name in calls if not hasattr(kind, name)]:
        status.refused(setting, f"it has no {', '.join(missing)}")
        return

    def start(scheduler: Any, call: str) -> None:
        if ATTRIBUTE not in vars(scheduler):
            setattr(scheduler, ATTRIBUTE, _attached(package, setting, lambda version: attach(version, scheduler, call)))

    for name, follow in calls.items():
        setattr(kind, name, _followed(getattr(kind, name), follow, start))


Attach = Callable[[str, Any, str], Attachment]  # with the version, the scheduler and the call by which it starts


def numbering() -> Callable[[Hashable], int]:
    """Numbers keys from 1 in the order in which they are first seen; None is 0."""
    numbers: dict[Hashable, int] = {None: 0}
    return lambda key: numbers.setdefault(key, len(numbers))


def _attached(package: str, setting: Mapping[str, str], attach: Callable[[str], Attachment]) -> Attachment | None:
    """The attachment to a scheduler of this version of the package; None, with a line in the log, if there is none."""
    found = in_environment(package)
    try:
        if found is None:
            raise UsageError(f"the folder of the {package} package is not on the path")
        attachment = attach(found.version)
        attachment.start(setting)
    except UsageError as error:
        status.refused(setting, str(error))
        return None
    except Exception as error:
        status.refused(setting, "internal error of swarden", error)
        return None
    status.attached(setting)
    return attachment


def _followed(original: Callable[..., Any], follow: Follow, start: Callable[[Any, str], None]) -> Callable[..., Any]:
    name, is_constructor = original.__name__, original.__name__ == "__init__"
    parameters = signature(original)
    defaults = [parameter.default for parameter in parameters.parameters.values()][1:]

    def arguments(scheduler: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if not kwargs and Parameter.empty not in defaults[len(args) :]:  # a bind costs more than the check of a step
            return *args, *defaults[len(args) :]
        call = parameters.bind(scheduler, *args, **kwargs)
        call.apply_defaults()
        return tuple(call.arguments.values())[1:]

    @wraps(original)
    def method(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if follow.starts and not is_constructor:
            start(scheduler, name)
        if follow.before is not None:
            _act(scheduler, follow.before, arguments(scheduler, args, kwargs))
        try:
            result = original(scheduler, *args, **kwargs)
            _act(scheduler, follow.after, result)
        except MemoryViolation:
            raise
        except Exception as error:
            attachment = vars(scheduler).get(ATTRIBUTE)
            if follow.outermost and attachment is not None:
                attachment.failed(error)
            raise
        if follow.starts and is_constructor:
            start(scheduler, name)
        return result

    return method


def _act(scheduler: Any, action: Callable[[Any, Any], None] | None, value: Any) -> None:
    """Let the attachment act, if the scheduler has one. An internal error ends the check, not the server."""
    attachment = vars(scheduler).get(ATTRIBUTE)
    if attachment is None or action is None:
        return
    try:
        action(attachment, value)
        return
    except MemoryViolation:
        raise
    except UsageError as error:
        LOGGER.warning("the check ends here: %s", error)
    except Exception:
        LOGGER.exception("the check ends here: internal error of swarden")
    attachment.detach()
    setattr(scheduler, ATTRIBUTE, None)
