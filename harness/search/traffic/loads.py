"""Loads: the output lengths and the priorities of the requests of a run, and the kinds of ops that come with them."""

from collections.abc import Sequence
from typing import NamedTuple

Kinds = tuple[str, ...]  # each as often as its weight


class Load(NamedTuple):
    """The output lengths and the priorities of a run's requests; `also` is added to the kinds of ops.

    A target suits the configuration of a run to its load by the load's name: without certain settings the engine would
    rarely reach the states that the load is for.
    """

    name: str
    outputs: Sequence[int]
    priorities: Sequence[int] = (0, 0, 0, 1, 2, -1)
    also: Kinds = ()


PLAIN = Load("plain", (1, 2, 4, 0, 9))  # mostly short outputs: short runs leave time for more runs
LONG = Load("long", (16, 8, 4, 24))
LONGEST = Load("longest", (40, 24, 16, 1))
RIVALS = Load("rivals", (16, 8, 4, 24), priorities=(0, 1, 2, 3), also=("contest",) * 6)
OVERBOOKED = Load("overbooked", (16, 24, 8, 4), also=("crowd",) * 3)
IMPATIENT = Load("impatient", (24, 16, 8, 40), also=("delay",) * 4)
RETURNING = Load("returning", (16, 2, 24, 1), also=("return",) * 4 + ("meanwhile",) * 3 + ("lack",) * 2)
OUTLASTING = Load("outlasting", (16, 2, 24, 1), also=("outlast",) * 12)
TALKING = Load("talking", (16, 8, 24, 4), also=("talk",) * 8 + ("crowd",) * 2)
REWINDING = Load("rewinding", (16, 12, 20, 8), also=("rewind",) * 10)
LOADS = (
    *(PLAIN, RIVALS, OVERBOOKED, RETURNING, TALKING, REWINDING),
    *(LONG, RETURNING, IMPATIENT, OUTLASTING, REWINDING, RETURNING),
)
LOADS_OF_PAIRS = (PLAIN, LONG, LONGEST)

# The kinds of ops of a run, beside those of its load.
MIXES: tuple[Kinds, ...] = (
    ("submit",) * 5 + ("step",) * 5 + ("abort", "advance_clock", "delay", "flush", "trouble"),
    ("submit",) * 6 + ("step",) * 5 + ("crowd", "long"),
    ("submit",) * 2 + ("step",) * 5 + ("crowd",) * 3 + ("abort",),
    ("submit",) * 5 + ("step",) * 4 + ("pressure",) * 2 + ("abort", "contest"),
    ("submit",) * 6 + ("step",) * 4 + ("abort",) * 2 + ("advance_clock", "delay", "drain", "flush"),
    ("submit",) * 6 + ("step",) * 5 + ("trouble",) * 4 + ("pressure", "crowd"),
    ("submit",) * 6 + ("step",) * 4 + ("pause",) * 3 + ("reset",) * 4 + ("pressure", "trouble", "abort", "crowd"),
    ("submit",) * 2 + ("step",) * 3 + ("contest",) * 4 + ("abort", "pause"),
    ("submit",) * 3 + ("step",) * 3 + ("return",) * 2 + ("meanwhile",) * 2 + ("lack", "abort", "trouble", "pressure"),
    ("submit",) * 2 + ("step",) * 3 + ("talk",) * 8 + ("abort", "trouble", "pressure", "flush", "reset"),
    ("submit",) * 4
    + ("step",) * 4
    + ("crowd", "long", "contest", "abort", "flush", "pause", "reset", "talk", "trouble"),
)
