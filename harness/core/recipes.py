"""The token ids of recipes."""

from collections import deque
from collections.abc import Sequence

from swarden.harness.core.ops import Recipe

BRANCHES = 4
MAX_PROMPTS = 8  # the latest prompts, which recipes can continue
FIRST_TOKEN = 1000  # the stand-in model generates smaller ids, so a prompt never has an output token by accident


def expand(recipe: Recipe, continued: Sequence[int] = ()) -> list[int]:
    """The prompt of a recipe, after the tokens that it continues; never empty.

    A token id depends on the choice that adds it, the depth of the choice and the offset in it, so
    paths with a common prefix give prompts with a common prefix.
    """
    tokens = list(continued)
    for depth, choice in enumerate(recipe.path):
        base = FIRST_TOKEN + (depth * BRANCHES + choice) * 64
        tokens += [base + offset % 64 for offset in range(recipe.stretch)]
    kept = max(1, len(tokens) - recipe.cut)
    return tokens[:kept] or [FIRST_TOKEN]


class Prompts:
    """The latest prompts, for recipes that continue one of them."""

    def __init__(self) -> None:
        self._last: deque[list[int]] = deque(maxlen=MAX_PROMPTS)

    def add(self, tokens: list[int]) -> None:
        self._last.append(tokens)

    def expand(self, recipe: Recipe) -> list[int]:
        """The prompt of a recipe, after the prompt that it continues, if there is one."""
        if recipe.continues is None or not self._last:
            return expand(recipe)
        return expand(recipe, self._last[recipe.continues % len(self._last)])
