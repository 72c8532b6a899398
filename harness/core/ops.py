"""The operations on an engine, as data: every op is total and is written to the op-log.

Requests and sessions are named by ordinals, which the system resolves among the live ones; if there are none, the op is
a recorded no-op.  `engine` is the ordinal of the engine in the log's header.  The ranges are checked when
an op-log is read.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from swarden.harness.core import limits

BRANCHES = 4
FIRST_TOKEN = 1000  # the stand-in model generates smaller ids, so a prompt never has an output token by accident


Natural = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_NUMBER)]
Namespace = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_NAMESPACE)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_TOKEN_ID)]
Fault = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z_]+\.[a-z_]+$", max_length=64)
]  # the names are checked by the target


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A prompt as a path of small branch choices, so that prompts collide at many depths."""

    path: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=limits.MAX_CHOICES)] = (0,)
    stretch: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_STRETCH)] = 4  # tokens that each choice adds
    cut: Natural = 0  # tokens removed at the end, so that prompts end and branch inside pages
    continues: Natural | None = None  # an earlier request, live or not (an ordinal), whose prompt and output come first


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="op"):
    """One operation on the engine with ordinal `engine`."""

    engine: Natural = 0


class Submit(Op, frozen=True, tag="submit"):
    """A request arrives.  An engine ignores options that it does not have."""

    recipe: Recipe = Recipe()
    tokens: tuple[TokenId, ...] | None = None  # the prompt, in place of the recipe
    max_new_tokens: Natural = 1
    stop: tuple[TokenId, ...] = ()
    priority: Annotated[int, msgspec.Meta(ge=-limits.MAX_NUMBER, le=limits.MAX_NUMBER)] = 0
    namespace: Namespace = 0
    seed: Natural | None = None  # a model samples at temperature 1; None: it takes the likeliest token
    adapter: Natural = 0  # the LoRA adapter of the model; 0: none
    uncached: bool = False  # it inserts nothing into the prefix cache
    prompt_logprobs: bool = False  # it asks for the log-probabilities of its prompt
    sequences: Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_SEQUENCES)] = 1  # n of an API, aborted together
    grammar: Natural = 0  # so many tokens of its one answer follow a grammar, and then its END; 0: none


class OpenSession(Op, frozen=True, tag="open_session"):
    """Open a session."""

    namespace: Namespace = 0


class Turn(Op, frozen=True, tag="turn"):
    """A turn of a session: a request whose prompt begins with all tokens of the session, less `rewind`."""

    session: Natural = 0
    recipe: Recipe = Recipe()
    rewind: Natural = 0
    tokens: tuple[TokenId, ...] | None = None  # the whole prompt, in place of the recipe
    kept: Natural = 0  # of the tokens, the first that are replaced by those of the session
    max_new_tokens: Natural = 1
    stop: tuple[TokenId, ...] = ()
    priority: Annotated[int, msgspec.Meta(ge=-limits.MAX_NUMBER, le=limits.MAX_NUMBER)] = 0
    grammar: Natural = 0  # as of a Submit op


class Accept(Op, frozen=True, tag="accept"):
    """Set the number of correct draft tokens of each later proposal, as a repeated sequence; () disables drafts."""

    lengths: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=limits.MAX_CHOICES)] = ()


class CloseSession(Op, frozen=True, tag="close_session"):
    session: Natural = 0


class Abort(Op, frozen=True, tag="abort"):
    request: Natural = 0


class Step(Op, frozen=True, tag="step"):
    """`count` engine steps, each captured and checked; at most MAX_STEPS_PER_OP."""

    count: Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_STEPS_PER_OP)] = 1


class AdvanceClock(Op, frozen=True, tag="advance_clock"):
    ms: Natural = 1


class Flush(Op, frozen=True, tag="flush"):
    """Drop every cached page that is not locked."""


class Pressure(Op, frozen=True, tag="pressure"):
    """An owner outside of the engine holds `pages` pages of a pool (an ordinal) from now on; 0 releases them."""

    pool: Natural = 0
    pages: Natural = 0


class PauseMode(StrEnum):
    """What a pause does with the requests."""

    RETRACT = "retract"  # the running ones release everything, and no pass is launched
    KEEP = "keep"  # no pass is launched; the running ones keep their KV
    ABORT = "abort"  # all are aborted, and further ones wait in front of the engine


class Pause(Op, frozen=True, tag="pause"):
    """The engine serves no request until it resumes."""

    mode: PauseMode = PauseMode.RETRACT


class ResetCause(StrEnum):
    """On whose behalf an engine is reset."""

    CLIENT = "client"
    WEIGHTS = "weights"  # new weights have been loaded
    MEMORY = "memory"  # the memory of the KV is released; the end of the pause, or of the op, restores it empty


class Reset(Op, frozen=True, tag="reset"):
    """The engine's own command that drops all KV and resets its pools; it is refused while the engine is busy."""

    cause: ResetCause = ResetCause.CLIENT  # WEIGHTS and MEMORY only where a client may ask for that


class Resume(Op, frozen=True, tag="resume"):
    """The engine launches passes again."""


class Inject(Op, frozen=True, tag="inject"):
    """Arm a fault: `skip` crossings of its port succeed, the `count` after them fail; a no-op if `fault` is None."""

    fault: Fault | None = None
    skip: Natural = 0
    count: Natural = 1
    rank: Natural | None = None  # only in this rank of an engine that has several


class Heal(Op, frozen=True, tag="heal"):
    """Disarm a fault; all faults if `fault` is None."""

    fault: Fault | None = None


class Drain(Op, frozen=True, tag="drain"):
    """Clear all faults, finish all requests, flush; then every unit of every pool must be free."""


AnyOp = (
    Submit
    | OpenSession
    | Turn
    | CloseSession
    | Accept
    | Abort
    | Step
    | AdvanceClock
    | Flush
    | Pressure
    | Pause
    | Resume
    | Reset
    | Inject
    | Heal
    | Drain
)


# The operations on a whole engine, by clients and operators.
SESSION_OPS: tuple[type[Op], ...] = (OpenSession, Turn, CloseSession)
SERVING_OPS: tuple[type[Op], ...] = (Submit, Abort, Step, Flush, Pause, Resume, Inject, Heal, Drain, Accept)
ENGINE_OPS: tuple[type[Op], ...] = (
    *(Submit, Abort, Step, AdvanceClock, Flush, Pressure, Pause, Resume, Inject, Heal, Drain, Accept),
    *SESSION_OPS,
)


def name_of(op: Op | type[Op]) -> str:
    """The name of an op's kind, as the op-log spells it."""
    return str(op.__struct_config__.tag)


def num_own_tokens(op: Op) -> int:
    """The number of prompt tokens that the op itself contains; the tokens of an earlier prompt are not counted."""
    match op:
        case Submit() | Turn() if op.tokens is not None:
            return len(op.tokens)
        case Submit() | Turn():
            return len(op.recipe.path) * op.recipe.stretch
    return 0


def expand(recipe: Recipe, continued: Sequence[int] = ()) -> list[int]:
    """The prompt of a recipe, after the tokens that it continues; never empty.

    A token id depends on the choice that adds it, the depth of the choice and the offset in it, so paths with a common
    prefix yield prompts with a common prefix.
    """
    tokens = list(continued)
    for depth, choice in enumerate(recipe.path):
        base = FIRST_TOKEN + (depth * BRANCHES + choice) * 64
        tokens += [base + offset % 64 for offset in range(recipe.stretch)]
    kept = max(1, len(tokens) - recipe.cut)
    return tokens[:kept] or [FIRST_TOKEN]
