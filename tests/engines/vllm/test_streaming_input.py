"""Streaming input: the turns of a session are further input for one request of the release."""

import pytest

from swarden.harness.core.ops import Abort, CloseSession, OpenSession, Recipe, Step, Turn
from swarden.harness.core.registry import target_of
from swarden.harness.core.system import EngineSystem
from swarden.invariants.events import SESSION_KIND, Kept, Lent

FIRST, SECOND = (Turn(recipe=Recipe(path=(0, 1)), max_new_tokens=5), Turn(recipe=Recipe(path=(2,)), max_new_tokens=3))
STEPS = 12
TOO_LONG = Turn(recipe=Recipe(path=(3,)), max_new_tokens=200)
ANOTHER = Turn(recipe=Recipe(path=(2,)), rewind=6, max_new_tokens=3)
SEPARATE = (OpenSession(), FIRST, Step(count=STEPS), SECOND)
QUEUED = (OpenSession(), FIRST, SECOND)


def served(engine, settings, ops):
    """The system after these ops and STEPS steps, and the events so far."""
    target = target_of(engine)
    system = EngineSystem(target.build(target.decode({"streaming_input": True, **settings})))
    events = []
    for op in (*ops, *(Step(),) * 2 * STEPS):
        for _ in range(op.count if isinstance(op, Step) else 1):
            system.do(Step() if isinstance(op, Step) else op)
            events += system.take_events()
    return system, events


def outputs(engine, settings, ops):
    """The output of each turn, and the one that its prompt and the windows want."""
    system, _ = served(engine, settings, ops)
    known = system.reference
    answers = []
    for number in system.submitted:
        turn = known.expectations[number]
        wanted = [
            turn.next_token(position, windows=known.windows, vocabulary=known.vocabulary)
            for position in range(turn.prompt_len, len(turn.tokens))
        ]
        answers.append((list(turn.tokens[turn.prompt_len :]), wanted))
    return answers


def lengths(engine, ops):
    """What is kept after each turn, what each turn goes on with, and who owns the blocks then."""
    system, events = served(engine, {}, ops)
    owners = [record.owner.kind for record in system.capture().records]
    system.do(CloseSession())
    left = system.capture()
    kept = [event.length for event in events if isinstance(event, Kept)]
    lent = [event.length for event in events if isinstance(event, Lent)]
    return kept, lent, owners, left.records


def left(engine, ops):
    """The reasons for which the turns have ended, and the sessions and records that are left."""
    system, _ = served(engine, {}, ops)
    found = system.capture()
    reasons = [system.reference.expectations[number].reason for number in system.submitted]
    return reasons, len(found.sessions), len(found.records)


@pytest.mark.parametrize("settings", [{}, {"asynchronous": True}], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("ops", [SEPARATE, QUEUED], ids=["separate", "queued"])
def test_each_turn_is_answered_as_its_whole_prompt_would_be(on_release, ops, settings):
    (first, wanted), (second, continued) = on_release("0.33.0", outputs, "vllm==0.33.0", settings, ops)

    assert (first, second) == (wanted, continued)
    assert (len(first), len(second)) == (FIRST.max_new_tokens, SECOND.max_new_tokens)


def test_session_keeps_the_kv_of_a_turn_until_it_is_closed(release, on_release):
    prompt_len = 8
    kept, lent, owners, left = on_release(release, lengths, f"vllm=={release}", SEPARATE)

    assert kept[0] == lent[0] == prompt_len + FIRST.max_new_tokens - 1
    assert (owners, left) == ([SESSION_KIND], ())


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [
        pytest.param((*QUEUED, Step(count=2), Abort()), (["abort", "abort"], 1, 0), id="cancelled"),
        pytest.param((*QUEUED, CloseSession()), (["length", "length"], 0, 0), id="closed"),
        pytest.param((OpenSession(), FIRST, TOO_LONG, SECOND), (["length", "rejected", "length"], 1, 1), id="too-long"),
        pytest.param((OpenSession(), FIRST, Step(count=STEPS), ANOTHER), (["length", "length"], 1, 1), id="rewound"),
    ],
)
def test_turns_end_with_their_session_or_one_after_the_other(on_release, ops, wanted):
    assert on_release("0.33.0", left, "vllm==0.33.0", ops) == wanted
