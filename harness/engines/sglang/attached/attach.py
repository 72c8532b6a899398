"""Attaches the check to the scheduler class of the installed release, at run time."""

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.core.errors import UsageError
from harness.engines.sglang.attached.attachment import Attachment, MemoryViolation, Setting
from harness.engines.sglang.boot import Release

LOGGER = logging.getLogger("swarden.strict")
KNOWN_LOOPS = ("event_loop_normal", "event_loop_overlap")
ATTRIBUTE = "swarden_attachment"  # of a scheduler; None after a refusal


def wrap(module: ModuleType, setting: Mapping[str, str]) -> None:
    """Wrap the event loops of the scheduler, and the calls that an attachment follows."""
    kind = module.Scheduler
    wanted = Setting(setting["level"], setting["on_violation"] == "log", Path(setting["out"]))
    for name in [name for name in dir(kind) if name.startswith("event_loop_")]:
        setattr(kind, name, _followed_loop(getattr(kind, name), wanted))
    for name, follow in CALLS.items():
        setattr(kind, name, _followed_call(getattr(kind, name), follow))


def _followed_loop(original: Callable[..., Any], setting: Setting) -> Callable[..., Any]:
    @wraps(original)
    def event_loop(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if ATTRIBUTE not in vars(scheduler):
            is_known = original.__name__ in KNOWN_LOOPS
            scheduler.swarden_attachment = _attached(scheduler, setting) if is_known else None
            if not is_known:
                LOGGER.warning("not attached: %s is not known", original.__name__)
        attachment = scheduler.swarden_attachment
        try:
            return original(scheduler, *args, **kwargs)
        except MemoryViolation:
            raise
        except Exception as error:
            if attachment is not None:
                attachment.failed(error)
            raise

    return event_loop


def _attached(scheduler: Any, setting: Setting) -> Attachment | None:
    """The attachment of a scheduler that is about to serve; None, with a line in the log, if it is not known."""
    try:
        attachment = Attachment(Release(import_module("sglang.version").__version__), scheduler, setting)
    except UsageError as error:
        LOGGER.warning("not attached: %s", error)
        return None
    LOGGER.info("attached, level %s, op-logs in %s", setting.level, setting.out)
    return attachment


Call = Callable[[], Any]
Follow = Callable[[Attachment, Call, tuple[Any, ...]], Any]


def _followed_call(original: Callable[..., Any], follow: Follow) -> Callable[..., Any]:
    """The method with its call followed; of a scheduler without an attachment, the method as it is."""

    @wraps(original)
    def method(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        attachment = vars(scheduler).get(ATTRIBUTE)
        if attachment is None:
            return original(scheduler, *args, **kwargs)
        return follow(attachment, lambda: original(scheduler, *args, **kwargs), (*args, *kwargs.values()))

    return method


def _take_inputs(attachment: Attachment, call: Call, _arguments: tuple[Any, ...]) -> Any:
    attachment.turn_ended()
    result = call()
    attachment.inputs_taken()
    return result


def _add(attachment: Attachment, call: Call, arguments: tuple[Any, ...]) -> Any:
    attachment.added(arguments[0])
    return call()


def _abort(attachment: Attachment, call: Call, arguments: tuple[Any, ...]) -> Any:
    attachment.aborting(arguments[0])
    return call()


def _launch(attachment: Attachment, call: Call, arguments: tuple[Any, ...]) -> Any:
    attachment.launching(arguments[0])
    return call()


def _complete(attachment: Attachment, call: Call, _arguments: tuple[Any, ...]) -> Any:
    attachment.completing()
    return call()


def _pause(attachment: Attachment, call: Call, arguments: tuple[Any, ...]) -> Any:
    attachment.paused(arguments[0].mode)
    return call()


def _resume(attachment: Attachment, call: Call, _arguments: tuple[Any, ...]) -> Any:
    attachment.resumed()
    return call()


def _flush(attachment: Attachment, call: Call, _arguments: tuple[Any, ...]) -> Any:
    is_done = call()
    if is_done:
        attachment.flushed()
    return is_done


CALLS: Mapping[str, Follow] = {
    "process_input_requests": _take_inputs,
    "_add_request_to_queue": _add,
    "abort_request": _abort,
    "run_batch": _launch,
    "process_batch_result": _complete,
    "pause_generation": _pause,
    "continue_generation": _resume,
    "flush_cache": _flush,
}
