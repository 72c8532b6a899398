"""The timer of the benchmarks: both sides run in turns in one process, so that other load of the machine hits both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median
from time import process_time
from typing import Any, NamedTuple, TypeVar

ResultT = TypeVar("ResultT")


class Measured(NamedTuple):
    """One case as text, and its figures for scripts, by name and perhaps by case; it is wrong if outputs differ."""

    text: str
    figures: Mapping[str, Any] = {}
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class Paired:
    """Figures of two sides, pair by pair; the results are rounded."""

    pairs: Sequence[Sequence[float]]

    @property
    def ratios(self) -> list[float]:
        return [round(first / second, 3) for first, second in self.pairs]

    @property
    def ratio(self) -> float:
        """The first figure over the second: the median over the pairs."""
        return round(median(first / second for first, second in self.pairs), 3)

    @property
    def sides(self) -> list[float]:
        """The medians of both sides."""
        return [round(median(side), 1) for side in zip(*self.pairs, strict=True)]


def timed(run: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """The CPU seconds of a run, and its result."""
    began = process_time()
    result = run()
    return process_time() - began, result


def in_turns(*sides: Callable[[], ResultT]) -> Iterator[list[ResultT]]:
    """The results of all sides, again and again without end; every other time the last side runs first."""
    for turn in count():
        results = [side() for side in (sides if turn % 2 == 0 else sides[::-1])]
        yield results if turn % 2 == 0 else results[::-1]


def paired(first: Callable[[], float], second: Callable[[], float], *, pairs: int) -> Paired:
    """Measure the figures of both sides in turns."""
    return Paired(list(islice(in_turns(first, second), pairs)))


def merged(cases: Iterable[Measured]) -> dict[str, Any]:
    """The figures of all cases; of one name, those by case are united, and lists are joined."""
    figures: dict[str, Any] = {}
    for case in cases:
        for name, figure in case.figures.items():
            if isinstance(figure, dict):
                figures[name] = figures.get(name, {}) | figure
            elif isinstance(figure, list):
                figures[name] = figures.get(name, []) + figure
            else:
                figures[name] = figure
    return figures
