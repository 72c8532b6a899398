"""Attaches the strict memory check to the scheduler class of the installed release, at run time.

A turn here is one iteration of the event loop.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.foreign.attached.follow import (
    ATTRIBUTE,
    AttachSetting,
    Follow,
    attached,
    can_follow,
    followed,
    recorded_errors,
)
from swarden.harness.engines.sglang.attached.attachment import SglangAttachment
from swarden.harness.engines.sglang.boot import SglangRelease

KNOWN_LOOPS = ("event_loop_normal", "event_loop_overlap")

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
    kind, wanted = module.Scheduler, AttachSetting.of(setting)
    if not can_follow(kind, (*CALLS, *KNOWN_LOOPS)):
        return
    for name in [name for name in dir(kind) if name.startswith("event_loop_")]:
        setattr(kind, name, _followed_loop(getattr(kind, name), wanted))
    for name, follow in CALLS.items():
        setattr(kind, name, followed(getattr(kind, name), follow))


def _followed_loop(original: Callable[..., Any], setting: AttachSetting) -> Callable[..., Any]:
    @wraps(original)
    def event_loop(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        def attach(version: str) -> SglangAttachment:
            if original.__name__ not in KNOWN_LOOPS:
                raise UsageError(f"it runs {original.__name__}; {' and '.join(KNOWN_LOOPS)} are known")
            return SglangAttachment(SglangRelease(version), scheduler, setting)

        if ATTRIBUTE not in vars(scheduler):
            setattr(scheduler, ATTRIBUTE, attached("sglang", setting, attach))
        with recorded_errors(scheduler):
            return original(scheduler, *args, **kwargs)

    return event_loop
