"""Requests, and short sequences of ops that reach states which single random ops rarely reach."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

import msgspec
from hypothesis import strategies as st

from swarden.harness.core.ops import (
    Abort,
    AdvanceClock,
    CloseSession,
    Drain,
    Flush,
    Op,
    OpenSession,
    Pause,
    Resume,
    Step,
    Submit,
    Turn,
)
from swarden.harness.search.draws import options, ordinals, rarely, recipes, stop_sets

TIMEOUT_MS = 100  # the request timeout that traffic configures and advances the clock by
REWINDS = (0, 0, 1, 5, 13, 30)  # tokens
CONTEST_PRIORITIES = (0, 4, 8, 12)  # of the request with the lowest priority in a contest


class Load(Protocol):
    """The output lengths and the priorities that the requests of a run are drawn from."""

    @property
    def outputs(self) -> Sequence[int]: ...

    @property
    def priorities(self) -> Sequence[int]: ...


class RequestMix(NamedTuple):
    """A load without engine settings."""

    outputs: Sequence[int]
    priorities: Sequence[int] = (0, 0, 0, 1, 2, -1)


def submissions(load: Load) -> st.SearchStrategy[Submit]:
    """A request with a prompt from a recipe."""
    return _submissions(tuple(load.outputs), tuple(load.priorities))


@cache
@st.composite
def _submissions(draw: st.DrawFn, outputs: tuple[int, ...], priorities: tuple[int, ...]) -> Submit:
    return Submit(
        recipe=draw(recipes()),
        max_new_tokens=draw(options(*outputs)),
        stop=draw(stop_sets()),
        priority=draw(options(*priorities)),
        namespace=draw(rarely(st.integers(1, 2))),
    )


@st.composite
def crowds(draw: st.DrawFn, load: Load) -> tuple[Op, ...]:
    """Several requests at once, sometimes with the same prompt, and the steps in which they compete."""
    crowd = draw(st.lists(submissions(load), min_size=2, max_size=4))
    if draw(st.booleans()):
        crowd = [msgspec.structs.replace(one, recipe=crowd[0].recipe, namespace=0) for one in crowd]
    return *crowd, Step(count=draw(options(4, 8)))


@st.composite
def contests(draw: st.DrawFn, load: Load) -> tuple[Op, ...]:
    """Some running requests, sometimes with one prompt, and a later one with a higher priority than most of them."""
    least = draw(options(*CONTEST_PRIORITIES))
    many = draw(st.lists(submissions(RequestMix(load.outputs, (least, least + 1, least + 2))), min_size=2, max_size=4))
    if draw(st.integers(0, 2)) == 2:
        many = [msgspec.structs.replace(one, recipe=many[0].recipe, namespace=0) for one in many]
    late = draw(submissions(RequestMix(load.outputs, (least + 3, least + 2))))
    return *many, Step(count=draw(st.integers(1, 4))), late, Step()


@st.composite
def talks(draw: st.DrawFn, load: Load, *, rewinds: bool = True) -> tuple[Op, ...]:
    """A turn of a session and its steps. Sometimes the session is opened before it, or the turn is disturbed.

    A disturbance is an abort, a second turn, a close, or with `rewinds` a later turn that rewinds the session.
    """
    opens = (OpenSession(namespace=draw(rarely(st.just(1)))),) * (draw(st.integers(0, 3)) < 2)
    turn = Turn(
        session=draw(st.integers(0, 3)),
        recipe=draw(recipes()),
        rewind=draw(options(*REWINDS)) if rewinds else 0,
        max_new_tokens=draw(options(*load.outputs)),
        stop=draw(stop_sets()),
        priority=draw(options(*load.priorities)),
    )
    rewinding = Turn(session=turn.session, rewind=draw(options(9, 13, 22)), max_new_tokens=1)
    disturbances = (
        (),
        (),
        (Abort(request=draw(ordinals())),),
        (turn,),
        (CloseSession(session=turn.session),),
        *((Step(count=8), Step(count=8), rewinding),) * (2 * rewinds),
    )
    before, after = Step(count=draw(options(8, 4, 1))), Step(count=draw(options(8, 1)))
    disturbance = draw(st.sampled_from(disturbances))
    return *opens, turn, before, *disturbance, *((after,) if disturbance else ())


@st.composite
def delays(draw: st.DrawFn, load: Load) -> tuple[Op, ...]:
    """A request, and a step when it has just reached TIMEOUT_MS."""
    return draw(submissions(load)), Step(count=draw(st.integers(1, 2))), AdvanceClock(ms=TIMEOUT_MS), Step()


@st.composite
def flushes(draw: st.DrawFn, load: Load) -> tuple[Op, ...]:
    """A flush. In half of the draws the engine is idle, and a request whose KV the flush removes comes again."""
    if draw(st.booleans()):
        return (Flush(),)
    request = draw(submissions(load))
    return request, Drain(), Flush(), request, Step(count=draw(st.integers(1, 4)))


@st.composite
def pauses(draw: st.DrawFn) -> tuple[Op, ...]:
    """A pause, in half of the draws some steps, and in three of four draws the resume."""
    steps = (Step(count=draw(st.integers(1, 3))),) * draw(st.integers(0, 1))
    ends = (Resume(),) * (draw(st.integers(0, 3)) < 3)
    return Pause(), *steps, *ends
