"""The reference model of the prefix cache: no tree, but a dictionary of pages.

The name of a page is the tag of the prefix that ends with it.  So prompts with an equal prefix share the pages of that
prefix.  The model works page by page and searches by brute force.  A run of pages stands for a node of the tree, and
is evicted whole; `ends_run` marks its last page, a border.  A lock, a publication or a branch adds a border.  No
border is removed.  A hole is a page without its unit in some pool.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.invariants.reference import namespace_tag, next_tag


@dataclass(slots=True)
class Page:
    """A cached page: the name of the page before it (0: none), its index, and per pool its unit (0: none) and locks."""

    above: int
    index: int
    units: list[int]
    locks: list[int]
    last_used: int = 0
    ends_run: bool = False


class Hold(NamedTuple):
    """A lock on a prefix: the names of its pages, and per pool the index of the first locked page."""

    names: tuple[int, ...]
    starts: tuple[int, ...]


class TreeModel:
    """Pages by name. `tails` is, per pool, the number of pages that are read at the end of a prefix; None for all."""

    def __init__(self, config: EngineConfig) -> None:
        self.pages: dict[int, Page] = {}
        self.page_size = config.page_size
        self.tails = [spec.window and -(-(spec.window - 1) // config.page_size) for spec in config.pools]
        self._num_uses = 0

    def names(self, namespace: int, tokens: Sequence[int]) -> list[int]:
        """The name of every whole page of `tokens`."""
        tags = list(accumulate(tokens, next_tag, initial=namespace_tag(namespace)))
        return tags[self.page_size :: self.page_size]

    def match(self, names: Sequence[int]) -> list[int]:
        """The longest resident prefix without a hole in the pages that its end reads."""
        known = self._known(names)
        for count in range(len(known), 0, -1):
            if all(self._is_usable(known[:count], pool) for pool in range(len(self.tails))):
                return known[:count]
        return []

    def shown(self, names: Sequence[int]) -> list[int]:
        """The first pool's units of the pages of a prefix; 0 for pages outside of the reader's window."""
        start = self._starts(len(names))[0]
        return [self.pages[name].units[0] if index >= start else 0 for index, name in enumerate(names)]

    def pages_to_lock(self, names: Sequence[int]) -> tuple[int, ...]:
        """Per pool, the number of evictable pages that a lock on the prefix would protect."""
        return tuple(
            sum(self.pages[name].units[pool] > 0 and not self.pages[name].locks[pool] for name in names[start:])
            for pool, start in enumerate(self._starts(len(names)))
        )

    def use(self, names: Sequence[int]) -> None:
        """Mark the pages of a prefix as used now."""
        self._num_uses += 1
        for name in names:
            self.pages[name].last_used = self._num_uses

    def lock(self, names: Sequence[int]) -> Hold:
        hold = Hold(tuple(names), self._starts(len(names)))
        self._count(hold, 1)
        for border in (len(names), *hold.starts):
            self._put_border(names, border)
        return hold

    def unlock(self, hold: Hold) -> None:
        self._count(hold, -1)

    def slide(self, hold: Hold, index: int) -> Hold:
        """Release the windowed locks below page number `index`."""
        index = min(index, len(hold.names))
        starts = tuple(
            start if tail is None else max(start, index) for start, tail in zip(hold.starts, self.tails, strict=True)
        )
        slid = hold._replace(starts=starts)
        if slid != hold:
            self._count(hold, -1)
            self._count(slid, 1)
            self._put_border(hold.names, index)
        return slid

    def insert(
        self,
        names: Sequence[int],
        incoming: Sequence[Sequence[int]],
        *,
        protected: int,
        borders: Sequence[Collection[int]],
    ) -> None:
        """Publish a prefix whose pages are the units `incoming`. The first `protected` pages were shared before.

        Per pool, `borders` are the page numbers at which a span without units begins or ends.
        """
        known = len(self._known(names))
        self._put_border(names, known)
        for start, end in list(self._stretches(names, protected, known)):
            lacking = [pool for pool, unit in enumerate(self.pages[names[start]].units) if not unit]
            for border in {border for pool in lacking for border in borders[pool] if start < border < end}:
                self._put_border(names, border)
        for start, end in list(self._stretches(names, protected, known)):
            self._recover([self.pages[name] for name in names[start:end]], incoming[start:end])
        for index in range(known, len(names)):
            before = names[index - 1] if index else 0
            self.pages[names[index]] = Page(before, index, list(incoming[index]), [0] * len(self.tails))
        for border in (*[one for of_pool in borders for one in of_pool if known < one < len(names)], len(names)):
            self._put_border(names, border)
        self.use(names)

    def evict(self, need: Sequence[int]) -> None:
        """Evict whole runs until the need of each pool is met, or all of its remaining pages are locked.

        A run at the end of a branch leaves all pools if no pool has it locked; another run leaves holes.
        """
        freed = [0] * len(need)
        for pool, wanted in enumerate(need):
            while freed[pool] < wanted:
                run = self._next_run(pool)
                if not run:
                    break
                if run[-1] in self._ends() and not any(map(any, (self.pages[name].locks for name in run))):
                    self._remove(run, freed)
                else:
                    freed[pool] += len(run)
                    for name in run:
                        self.pages[name].units[pool] = 0

    def counts(self, pool: int) -> tuple[int, int]:
        """The number of evictable pages and the number of protected pages."""
        locks = [page.locks[pool] for page in self.pages.values() if page.units[pool]]
        return locks.count(0), len(locks) - locks.count(0)

    def _known(self, names: Sequence[int]) -> list[int]:
        return list(takewhile(self.pages.__contains__, names))

    def _is_usable(self, names: Sequence[int], pool: int) -> bool:
        units = [self.pages[name].units[pool] for name in names]
        return all(units) or (self.tails[pool] is not None and all(units[self._starts(len(names))[pool] :]))

    def _is_live(self, name: int) -> bool:
        return all(self.pages[name].units)

    def _starts(self, count: int) -> tuple[int, ...]:
        """Per pool, the index of the first page that the token after a prefix of `count` pages reads."""
        return tuple(0 if tail is None else max(0, count - tail) for tail in self.tails)

    def _count(self, hold: Hold, locks: int) -> None:
        for pool, start in enumerate(hold.starts):
            for name in hold.names[start:]:
                self.pages[name].locks[pool] += locks

    def _put_border(self, names: Sequence[int], count: int) -> None:
        """End a run after the first `count` pages of a prefix."""
        if count:
            self.pages[names[count - 1]].ends_run = True

    def _stretches(self, names: Sequence[int], first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The page numbers of each run of a known prefix, from page number `first` up to `stop`."""
        for end in range(first + 1, stop + 1):
            if self.pages[names[end - 1]].ends_run:
                yield first, end
                first = end

    def _recover(self, run: Sequence[Page], incoming: Sequence[Sequence[int]]) -> None:
        """Fill the holes of a run with the new units, if all are there in some pool.

        All units of the run are replaced, unless a reader has it locked, or it has units in a pool that the new ones
        lack.
        """
        page, pools = run[0], range(len(self.tails))
        has = [all(units[pool] for units in incoming) for pool in pools]
        filled = [pool for pool in pools if has[pool] and not page.units[pool]]
        keeps = any(page.units) and (any(page.locks) or any(page.units[pool] and not has[pool] for pool in pools))
        for one, units in zip(run, incoming, strict=True):
            for pool in (filled if keeps else pools) if filled else ():
                one.units[pool] = units[pool]

    def _ends(self) -> set[int]:
        """The pages without a next page."""
        return set(self.pages) - {page.above for page in self.pages.values()}

    def _runs(self) -> list[list[int]]:
        """All runs, each as its pages in order."""
        runs = []
        for name, page in self.pages.items():
            if page.ends_run:
                run = [name]
                while page.above in self.pages and not self.pages[page.above].ends_run:
                    run.insert(0, page.above)
                    page = self.pages[page.above]
                runs.append(run)
        return runs

    def _read_at_some_end(self, pool: int) -> set[int]:
        """The pages in the window at the end of any branch."""
        read, tail = set(), self.tails[pool] or 0
        for name in self._ends():
            for _ in range(tail):
                if name in self.pages:
                    read.add(name)
                    name = self.pages[name].above
        return read

    def _next_run(self, pool: int) -> list[int]:
        """The least recently used unlocked run of a pool; [] if there is none.

        A pool without a window evicts only ends of branches, a windowed pool runs outside of every window first.
        """
        ends, read = self._ends(), self._read_at_some_end(pool)
        free = [run for run in self._runs() if self.pages[run[-1]].units[pool] and not self.pages[run[-1]].locks[pool]]
        if self.tails[pool] is None:
            free = [run for run in free if run[-1] in ends]
        return min(
            free,
            key=lambda run: (run[-1] in read, self.pages[run[-1]].last_used, self.pages[run[-1]].index),
            default=[],
        )

    def _remove(self, run: list[int], freed: list[int]) -> None:
        """Remove a run at the end of a branch, and then the holes before it that became an end."""
        while run:
            above = self.pages[run[0]].above
            for name in run:
                for pool, unit in enumerate(self.pages.pop(name).units):
                    freed[pool] += unit > 0
            run = next((run for run in self._runs() if run[-1] == above and above in self._ends()), [])
            if run and (self._is_live(above) or any(self.pages[above].locks)):
                run = []
