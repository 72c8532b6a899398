"""A source of random choices for a target's configurations."""

import random


class RandomDraw:
    def __init__(self, seed):
        self._random = random.Random(seed)

    def one_of(self, options):
        return self._random.choice(options)

    def integer(self, low, high):
        return self._random.randint(low, high)
