"""An op in words: its prompt first, then each argument that is not the default."""

from collections.abc import Sequence

from swarden.harness.core.ops import Drain, Op, Recipe, Step, Submit, Turn, name_of

MAX_TOKENS = 8  # token ids of a prompt that are shown
SHOWN_APART = {"op", "engine", "recipe", "tokens", "max_new_tokens"}  # arguments that are not shown as "name value"
ORDINALS = {"request": "live request", "session": "open session"}  # arguments that count the things of a moment


def op_text(op: Op) -> str:
    """An op in words, as in "submit 8 tokens by path 0.1, 5 new, priority 2"."""
    if isinstance(op, Step | Drain):
        return name_of(op)
    words = []
    if isinstance(op, Submit | Turn):
        words = [_prompt_text(op.recipe, op.tokens), f"{op.max_new_tokens} new"]
    bare = type(op)()
    for name in op.__struct_fields__:
        value = getattr(op, name)
        if name in ORDINALS:
            words.append(f"the {_ordinal(value)} {ORDINALS[name]}")
        elif name not in SHOWN_APART and value != getattr(bare, name):
            words.append(f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return f"{name_of(op)} {', '.join(words)}".rstrip()


def _prompt_text(recipe: Recipe, tokens: Sequence[int] | None) -> str:
    """A prompt in words: its first token ids, or its recipe as in "12 tokens by path 0.1.1 after prompt 3 less 2"."""
    if tokens is not None:
        more = f" and {len(tokens) - MAX_TOKENS} more" if len(tokens) > MAX_TOKENS else ""
        return f"tokens {' '.join(map(str, tokens[:MAX_TOKENS]))}{more}"
    own = f"{len(recipe.path) * recipe.stretch} tokens by path {'.'.join(map(str, recipe.path))}"
    after = "" if recipe.continues is None else f" after the {_ordinal(recipe.continues)} prompt"
    return f"{own}{after}{f' less {recipe.cut}' if recipe.cut else ''}"


def _ordinal(number: int) -> str:
    """The ordinal of a number that counts from 0, as in "1st"."""
    place = number + 1
    return f"{place}{'th' if place % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"
