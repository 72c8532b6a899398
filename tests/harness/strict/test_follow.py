"""The boundary between a server and the check of its scheduler: an error of the check ends the check, and no call."""

import gc
import logging
import os
from contextlib import suppress
from dataclasses import replace

import pytest

from swarden.harness.strict.follow import Attachment, Follow, wrap
from tests.harness.strict.test_live import live_of

PLACES = ("attaching", "terms", "before", "after", "around", "behind")


class Scheduler:
    error: BaseException
    num_failed = 0

    def take(self, count):
        """Take some pages one by one, and fail for too many."""
        if count > 4:
            self.num_failed += 1
            raise self.error
        return [*self.take(count - 1), count] if count else []

    def step(self, count=2):
        return self.take(count)


class SomeAttachment(Attachment):
    """Fails in one place, and notes each place that is reached."""

    def __init__(self, scheduler, wrap_method, failing, reached):
        super().__init__(wrap_method)
        self._failing, self._reached = failing, reached
        self.live = replace(live_of([1, 2, 3]), terms=lambda: self.reach("terms"))
        wrap_method(scheduler, "take", self._around)
        self.reach("attaching")

    def reach(self, place, then=tuple):
        self._reached.append(place)
        if place == self._failing:
            raise KeyError(place)
        return then()

    def _around(self, take, count):
        self.reach("around")
        try:
            take(count)
        finally:
            self.reach("behind")


def followed(monkeypatch, tmp_path, failing, reached):
    """A scheduler of which the check fails in a place."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.NOTSET)  # an engine that was imported disables logs
    monkeypatch.setattr(Scheduler, "step", Scheduler.step)  # wrapped until the end of the test
    step = Follow(
        lambda one, _: one.reach("before", one._begin_step),
        lambda one, _: one.reach("after", one._end_step),
        outermost=True,
        starts=True,
    )
    setting = {"level": "sums", "on_violation": "raise", "out": str(tmp_path), "status": str(tmp_path)}

    def attach(_version, scheduler, _call, wrap_method):
        return SomeAttachment(scheduler, wrap_method, failing, reached)

    wrap(Scheduler, {"step": step}, "pytest", setting, attach)
    return Scheduler()


@pytest.mark.parametrize("failing", PLACES)
def test_error_of_the_check_ends_it_and_later_calls_are_those_of_the_server(failing, tmp_path, monkeypatch, caplog):
    reached: list[str] = []
    scheduler = followed(monkeypatch, tmp_path, failing, reached)

    assert [scheduler.step() for _ in range(3)] == [[1, 2]] * 3
    assert {*reached[reached.index(failing) :]} == {failing}  # also in the calls around that which ended the check
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (record.message[:9], record.exc_info[0]) == ("swarden: ", KeyError)
    state = "refused" if failing == "attaching" else "ended"
    assert (tmp_path / f"{os.getpid()}.{state}").read_text() == "internal error of swarden"


@pytest.mark.parametrize("kind", [ZeroDivisionError, StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("failing", [None, *PLACES])
def test_error_of_the_server_is_its_own_with_and_without_an_error_of_the_check(failing, kind, tmp_path, monkeypatch):
    scheduler = followed(monkeypatch, tmp_path, failing, [])
    scheduler.error = kind()
    with pytest.raises(kind) as raised:
        scheduler.step(9)

    assert (raised.value, raised.value.__context__, scheduler.num_failed) == (scheduler.error, None, 1)


def test_memory_of_a_failed_call_of_the_server_is_freed_with_its_error(tmp_path, monkeypatch):
    """Not by the next garbage collection: it may be tensors."""
    scheduler, gone = followed(monkeypatch, tmp_path, None, []), []

    class Error(Exception):
        def __del__(self):
            gone.append("error")

    gc.disable()
    try:
        with suppress(Error):
            scheduler.error = Error()
            scheduler.step(9)
        del scheduler.error
        assert gone == ["error"]
    finally:
        gc.enable()
