"""Attaches the strict memory check to the scheduler class of the installed release, at run time."""

from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

from swarden.harness.engines.foreign.attached.follow import (
    ATTRIBUTE,
    AttachSetting,
    Follow,
    attached,
    can_follow,
    followed,
    recorded_errors,
)
from swarden.harness.engines.vllm.attached.attachment import VllmAttachment
from swarden.harness.engines.vllm.boot import VllmRelease

CALLS: Mapping[str, Follow] = {
    "add_request": Follow(lambda one, arguments: one.added(arguments[0])),
    "finish_requests": Follow(after=lambda one, _: one.finished()),
    "schedule": Follow(lambda one, _: one.scheduling(), lambda one, output: one.scheduled(output)),
    "_preempt_request": Follow(lambda one, arguments: one.preempting(arguments[0])),
    "update_from_output": Follow(lambda one, _: one.completing(), lambda one, outputs: one.updated(outputs)),
    "reset_prefix_cache": Follow(
        lambda one, arguments: one.resetting(arguments[0]), lambda one, is_done: one.reset(is_done)
    ),
}
STEPS = ("schedule", "update_from_output")


def wrap(module: ModuleType, setting: Mapping[str, str]) -> None:
    """Wrap the constructor of the scheduler and the calls that an attachment follows, or none if one is missing."""
    kind = module.Scheduler
    if not can_follow(kind, tuple(CALLS)):
        return
    for name, follow in CALLS.items():
        call = followed(getattr(kind, name), follow)
        setattr(kind, name, _recorded(call) if name in STEPS else call)
    kind.__init__ = _attaching(kind.__init__, AttachSetting.of(setting))


def _attaching(original: Callable[..., None], setting: AttachSetting) -> Callable[..., None]:
    @wraps(original)
    def construct(scheduler: Any, *args: Any, **kwargs: Any) -> None:
        original(scheduler, *args, **kwargs)
        new = attached("vllm", setting, lambda version: VllmAttachment(VllmRelease(version), scheduler, setting))
        setattr(scheduler, ATTRIBUTE, new)

    return construct


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        with recorded_errors(scheduler):
            return original(scheduler, *args, **kwargs)

    return step
