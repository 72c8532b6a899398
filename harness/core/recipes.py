"""From a recipe to token ids."""

from collections import deque
from collections.abc import Sequence

from harness.core.ops import Recipe

BRANCHES = 4
MOST_PROMPTS = 8  # remembered, for recipes to continue
FIRST_TOKEN = 1000  # outputs of the stand-in model are below, so a prompt collides with one only on purpose


def expand(recipe: Recipe, continued: Sequence[int] = ()) -> list[int]:
    """The prompt of a recipe behind the tokens that it continues; never empty.

    A token is named by the choice that added it and its place, so paths that agree up to some
    choice agree in all tokens up to there, whatever follows.
    """
    tokens = list(continued)
    for depth, choice in enumerate(recipe.path):
        base = FIRST_TOKEN + (depth * BRANCHES + choice) * 64
        tokens += [base + offset % 64 for offset in range(recipe.stretch)]
    kept = max(1, len(tokens) - recipe.cut)
    return tokens[:kept] or [FIRST_TOKEN]


class Prompts:
    """The last that were used, for recipes that continue one."""

    def __init__(self) -> None:
        self._last: deque[list[int]] = deque(maxlen=MOST_PROMPTS)

    def add(self, tokens: list[int]) -> None:
        self._last.append(tokens)

    def expand(self, recipe: Recipe) -> list[int]:
        """The prompt of a recipe, behind the one that it continues where there is any."""
        if recipe.continues is None or not self._last:
            return expand(recipe)
        return expand(recipe, self._last[recipe.continues % len(self._last)])
