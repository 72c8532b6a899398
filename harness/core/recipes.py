"""The token ids of recipes."""

from collections.abc import Sequence

from swarden.harness.core.ops import Recipe

BRANCHES = 4
FIRST_TOKEN = 1000  # the stand-in model generates smaller ids, so a prompt never has an output token by accident


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
