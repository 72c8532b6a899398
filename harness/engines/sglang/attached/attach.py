"""Attaches the strict memory check to the scheduler class of the installed release, at run time.

A turn here is one iteration of the event loop.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from harness.core.errors import UsageError
from harness.core.releases import in_environment
from harness.engines.sglang.attached.attachment import Attachment, MemoryViolation, Setting
from harness.engines.sglang.boot import Release

LOGGER = logging.getLogger("swarden.strict")
KNOWN_LOOPS = ("event_loop_normal", "event_loop_overlap")
ATTRIBUTE = "swarden_attachment"  # of a scheduler; None if it is not checked


class Follow(NamedTuple):
    """What an attachment does before a call, with its arguments, and after it, with its result if there is one."""

    before: Callable[[Attachment, Sequence[Any]], None] | None = None
    after: Callable[[Attachment, Any], None] | None = None


CALLS: Mapping[str, Follow] = {
    "process_input_requests": Follow(lambda one, _: one.turn_ended(), lambda one, _: one.inputs_taken()),
    "_add_request_to_queue": Follow(lambda one, arguments: one.added(arguments[0])),
    "abort_request": Follow(lambda one, arguments: one.aborting(arguments[0])),
    "run_batch": Follow(lambda one, arguments: one.launching(arguments[0])),
    "process_batch_result": Follow(lambda one, _: one.completing()),
    "pause_generation": Follow(lambda one, arguments: one.paused(arguments[0].mode)),
    "continue_generation": Follow(lambda one, _: one.resumed()),
    "flush_cache": Follow(after=lambda one, is_done: one.flushed(is_done)),
}


def wrap(module: ModuleType, setting: Mapping[str, str]) -> None:
    """Wrap the event loops of the scheduler and the calls that an attachment follows, or none if one is missing."""
    kind = module.Scheduler
    if missing := [name for name in (*CALLS, *KNOWN_LOOPS) if not hasattr(kind, name)]:
        LOGGER.warning("not attached: the scheduler has no %s", ", ".join(missing))
        return
    wanted = Setting(setting["level"], setting["on_violation"] == "log", Path(setting["out"]))
    for name in [name for name in dir(kind) if name.startswith("event_loop_")]:
        setattr(kind, name, _followed_loop(getattr(kind, name), wanted))
    for name, follow in CALLS.items():
        setattr(kind, name, _followed_call(getattr(kind, name), follow))


def _followed_loop(original: Callable[..., Any], setting: Setting) -> Callable[..., Any]:
    @wraps(original)
    def event_loop(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if ATTRIBUTE not in vars(scheduler):
            scheduler.swarden_attachment = _attached(scheduler, original.__name__, setting)
        try:
            return original(scheduler, *args, **kwargs)
        except MemoryViolation:
            raise
        except Exception as error:
            if scheduler.swarden_attachment is not None:
                scheduler.swarden_attachment.failed(error)
            raise

    return event_loop


def _attached(scheduler: Any, loop: str, setting: Setting) -> Attachment | None:
    """The attachment of a scheduler that is about to serve; None, with a line in the log, if it is not known."""
    found = in_environment("sglang")
    try:
        if loop not in KNOWN_LOOPS:
            raise UsageError(f"it runs {loop}; {' and '.join(KNOWN_LOOPS)} are known")
        if found is None:
            raise UsageError("the folder of the sglang package is not on the path")
        attachment = Attachment(Release(found.version), scheduler, setting)
    except UsageError as error:
        LOGGER.warning("not attached to the scheduler: %s", error)
        return None
    except Exception:
        LOGGER.exception("not attached to the scheduler, by a fault of swarden")
        return None
    LOGGER.info("attached to the scheduler, level %s, op-logs in %s", setting.level, setting.out)
    return attachment


def _followed_call(original: Callable[..., Any], follow: Follow) -> Callable[..., Any]:
    @wraps(original)
    def method(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        _act(scheduler, follow.before, (*args, *kwargs.values()))
        result = original(scheduler, *args, **kwargs)
        _act(scheduler, follow.after, result)
        return result

    return method


def _act(scheduler: Any, action: Callable[[Attachment, Any], None] | None, value: Any) -> None:
    """Let the attachment act, if the scheduler has one. A fault of swarden ends the check, not the server."""
    attachment = vars(scheduler).get(ATTRIBUTE)
    if attachment is None or action is None:
        return
    try:
        action(attachment, value)
    except MemoryViolation:
        raise
    except Exception:
        LOGGER.exception("the check ends here, by a fault of swarden")
        attachment.detach()
        scheduler.swarden_attachment = None
