"""The timer of the benchmarks: all sides run in turns in one process, so that other load of the machine hits each."""

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any, NamedTuple, TypeVar

ResultT = TypeVar("ResultT")


class Case(NamedTuple):
    """A case of a part of the benchmarks, and its figures by name."""

    name: str
    figures: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{name} {figure}" for name, figure in self.figures.items())


def timed(run: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """The CPU seconds of a run, and its result."""
    began = process_time()
    result = run()
    return process_time() - began, result


def paired(turns: int, **sides: Callable[[], float]) -> dict[str, Any]:
    """Measure the figures of all sides in turns, every other time in reverse order.

    Returns the ratio of the first side to the second, which is the median over the turns; the median of each side; and
    the ratio of each turn.
    """
    measured = []
    for turn in range(turns):
        order = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        measured.append({name: sides[name]() for name in order})
    first, second, *_ = sides
    ratios = [round(figures[first] / figures[second], 3) for figures in measured]
    medians = {name: round(median(figures[name] for figures in measured), 1) for name in sides}
    return {"ratio": round(median(ratios), 3), **medians, "ratios": ratios}
