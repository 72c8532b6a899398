"""How a flight recorder writes prompts: with renumbered tokens, with the tokens themselves, or not at all.

    SWARDEN_STRICT_RECORD=renumbered|verbatim|off     unset or empty is renumbered

A renumbered token stands for the whole prefix that ends with it.  So the prompts share the prefixes that they shared,
and nothing else of them is left: neither the vocabulary nor which tokens are equal or frequent.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import FIRST_TOKEN, Op, Submit, Turn

VARIABLE = "SWARDEN_STRICT_RECORD"
FOLDER_VARIABLE = "SWARDEN_STRICT_OUT"  # the folder for op-logs; unset or empty is .swarden/strict
RENUMBERED, VERBATIM, OFF = "renumbered", "verbatim", "off"


def record_mode(environment: Mapping[str, str]) -> str:
    """The mode in the environment; raises UsageError for an unknown one."""
    mode = environment.get(VARIABLE) or RENUMBERED
    if mode not in (RENUMBERED, VERBATIM, OFF):
        raise UsageError(f"{VARIABLE}: {mode!r} is not one of {RENUMBERED}, {VERBATIM}, {OFF}")
    return mode


def renumbered(ops: Sequence[Op]) -> list[Op]:
    """The ops with other tokens in their prompts, none of which a stand-in for a model generates.

    Stop tokens stay: they are compared with what the model generates.
    """
    numbers: dict[tuple[int, int], int] = {}  # by the number of the prefix before, and the token
    found = []
    for op in ops:
        if isinstance(op, Submit | Turn) and op.tokens is not None:
            prefix, tokens = 0, []
            for token in op.tokens:
                prefix = numbers.setdefault((prefix, token), FIRST_TOKEN + len(numbers))
                tokens.append(prefix)
            op = structs.replace(op, tokens=tuple(tokens))
        found.append(op)
    return found
