"""The stand-ins for streams and events of a GPU."""

from functools import partial

from swarden.harness.kit.streams import Devices, Stream, StreamCopy, StreamEvent


def queue_copies(stream: Stream, made: list[str], slow: set[str], *names: str) -> StreamEvent:
    """Put copies on a stream; returns an event behind them."""
    with Devices.stream(stream):
        for name in names:
            Devices.current_stream().put(StreamCopy(partial(made.append, name), partial(slow.__contains__, name)))
        event = StreamEvent()
        event.record()
    return event


def test_copies_are_made_in_order_up_to_a_slow_one_when_the_release_asks():
    stream = Stream()
    made: list[str] = []
    slow = {"third"}
    first, all_of_them = (queue_copies(stream, made, slow, *names) for names in (("first",), ("second", "third")))

    answers = [(first.query(), list(made)), (all_of_them.query(), list(made))]
    all_of_them.synchronize()

    assert answers == [(True, ["first"]), (False, ["first", "second"])]
    assert made == ["first", "second", "third"]


def test_copy_that_another_stream_waits_for_is_made_but_ends_when_the_release_asks():
    stream, made, slow = Stream(), list[str](), {"load"}
    event = queue_copies(stream, made, slow, "load")

    Stream().wait_event(event)
    answers = [(event.query(), list(made))]
    slow.clear()
    answers.append((event.query(), list(made)))

    assert answers == [(False, ["load"]), (True, ["load"])]


def test_stream_that_waits_for_an_event_is_behind_the_passes_before_it():
    passes, schedule, loads, event = Stream(), Stream(), Stream(), StreamEvent()
    passes.behind = 3
    schedule.wait_stream(passes)
    event.record(schedule)
    passes.behind = 4

    event.wait(loads)

    assert loads.behind == 3
