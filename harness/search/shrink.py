"""The shrinker: from an op-log that fails to one that fails in the same way and cannot be made smaller.

It knows nothing of engines: it hands candidates to a predicate, and takes each that still fails.
Smaller is fewer ops, then fewer engine steps, then smaller arguments, then fewer settings that are
not the default.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from time import process_time
from typing import Any, Protocol

import msgspec

from harness.core.errors import InvalidConfig, UsageError
from harness.core.oplog import OpLog
from harness.core.ops import Drain, Op, Step
from harness.core.registry import target_of
from harness.core.target import Target
from harness.search.simpler import (
    joined,
    merged,
    renumbered,
    replaced,
    shared_arguments,
    simpler_branches,
    simpler_in,
    simpler_values,
    size,
    undrained,
)

MAX_OPS_FOR_PAIRS = 16  # 120 pairs
STEPS_OF_A_DRAIN = 1000  # more than a Step op has, for it takes as many as it needs
Mapping = dict[str, Any]


class Failure(Protocol):
    """That a log failed, and behind which of its ops; the ops behind that one were not run."""

    @property
    def op_index(self) -> int: ...


class DoesNotFail(UsageError):
    """There is nothing to shrink."""


class BudgetSpent(Exception):
    """No further candidate may be run."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a shrink may cost, whichever ends first."""

    executions: int = 2000
    cpu_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest log found, without digests, and what it cost; `complete` unless the budget ended it."""

    log: OpLog
    executions: int
    op_calls: int
    cpu_seconds: float
    complete: bool


def shrink(
    log: OpLog,
    still_fails: Callable[[OpLog], Failure | None],
    budget: Budget,
    *,
    simplify_config: bool = True,
) -> Shrunk:
    """Make `log` smaller as long as `still_fails` finds the same failure; raises DoesNotFail where it finds none."""
    search = _Search(OpLog(log.header, list(log.ops)), still_fails, budget)
    complete = True
    try:
        search.run(simplify_config=simplify_config)
    except BudgetSpent:
        complete = False
    return Shrunk(search.log, search.executions, search.op_calls, search.cpu_seconds, complete)


def measure(log: OpLog) -> tuple[int, int, int, int]:
    """What is made smaller, the first difference deciding."""
    steps = sum(op.count if isinstance(op, Step) else STEPS_OF_A_DRAIN * isinstance(op, Drain) for op in log.ops)
    defaults = target_of(log.header.engine).simplified
    settings = sum(config[name] != defaults.get(name) for config in log.header.configs for name in config)
    return len(log.ops), steps, sum(map(size, log.ops)), settings


@dataclass
class _Search:
    """The smallest log so far, and everything that was tried."""

    log: OpLog
    still_fails: Callable[[OpLog], Failure | None]
    budget: Budget
    executions: int = 0
    op_calls: int = 0
    _began: float = field(default_factory=process_time)
    _tried: set[tuple[bytes, tuple[Op, ...]]] = field(default_factory=set)

    @property
    def cpu_seconds(self) -> float:
        return process_time() - self._began

    @property
    def target(self) -> Target:
        return target_of(self.log.header.engine)

    def run(self, *, simplify_config: bool) -> None:
        """All passes until none of them changes anything; the dear ones only where the others are at their end."""
        if not self._takes(self.log):
            raise DoesNotFail("nothing to shrink: the op-log does not fail, or not in this way")
        self._keep_last()
        shorter = (self._delete, self._shorten, self._merge, self._renumber)
        simpler_config = (self._simplify_config,) * simplify_config
        rounds = [shorter, simpler_config, (self._simplify_together, self._simplify_each), (self._delete_pairs,)]
        while any(self._gets_smaller(passes) for passes in rounds):
            pass

    def _gets_smaller(self, passes: Sequence[Callable[[], None]]) -> bool:
        before = measure(self.log)
        for each in passes:
            each()
        return measure(self.log) < before

    # --- trying

    def _accepts(self, ops: Sequence[Op], configs: list[Mapping] | None = None) -> bool:
        """Take a candidate if it is smaller, was not tried and still fails."""
        header = self.log.header if configs is None else msgspec.structs.replace(self.log.header, configs=configs)
        candidate = OpLog(header, list(ops))
        key = (msgspec.json.encode(header.configs), tuple(ops))
        if not ops or key in self._tried or measure(candidate) >= measure(self.log):
            return False
        taken = self._takes(candidate)
        self._tried.add(key)
        return taken

    def _takes(self, candidate: OpLog) -> bool:
        """Run a candidate; if it fails it is the smallest log, without what stands behind the failing op."""
        if self.executions >= self.budget.executions or self.cpu_seconds >= self.budget.cpu_seconds:
            raise BudgetSpent
        self.executions += 1
        failure = self.still_fails(candidate)
        if failure is None:
            self.op_calls += len(candidate.ops)
            return False
        self.op_calls += failure.op_index + 1
        self.log = OpLog(candidate.header, candidate.ops[: failure.op_index + 1])
        return True

    # --- passes

    def _keep_last(self) -> None:
        """The last ops alone, twice as many each time: most of a long run has nothing to do with its end."""
        length = 1
        while length < len(self.log.ops) and not self._accepts(self.log.ops[-length:]):
            length *= 2

    def _delete(self) -> None:
        """Chunks of half of the ops, of a quarter and so on, each from the end; single ops until all are needed."""
        length = len(self.log.ops) // 2
        while length > 1:
            self._delete_chunks(length)
            length //= 2
        while self._delete_chunks(1):
            pass

    def _delete_chunks(self, length: int) -> bool:
        """Whether any chunk went.  The failing op stands last and is left alone by chunks of several."""
        before = end = len(self.log.ops)
        end -= length > 1
        while end > 0:
            start = max(0, end - length)
            ops = self.log.ops
            end = min(start, len(self.log.ops)) if self._accepts([*ops[:start], *ops[end:]]) else start
        return len(self.log.ops) < before

    def _delete_pairs(self) -> None:
        """Two ops at a time, wherever they stand."""
        ops = self.log.ops
        if len(ops) <= MAX_OPS_FOR_PAIRS:
            pairs = combinations(range(len(ops)), 2)
            any(self._accepts([op for index, op in enumerate(ops) if index not in pair]) for pair in pairs)

    def _shorten(self) -> None:
        """The last op to as few steps as it fails in: a candidate that does not fail executes them all."""
        if Step in self.target.machines[self.log.header.machine].ops:
            self._accepts(undrained(self.log.ops))
        if isinstance(self.log.ops[-1], Step):
            self._simplify(len(self.log.ops) - 1)

    def _merge(self) -> None:
        self._repeat(merged)
        self._repeat(joined)

    def _renumber(self) -> None:
        self._repeat(renumbered)

    def _repeat(self, candidates: Callable[[Sequence[Op]], Iterator[list[Op]]]) -> None:
        while any(self._accepts(ops) for ops in candidates(self.log.ops)):
            pass

    def _simplify_together(self) -> None:
        """What several ops have in common may matter only in that it is common."""
        self._accepts([type(op)() for op in self.log.ops])
        for argument in shared_arguments(self.log.ops):
            any(self._accepts(replaced(self.log.ops, argument, value)) for value in simpler_values(argument))
        self._repeat(simpler_branches)

    def _simplify_each(self) -> None:
        """One op after the other, the last first."""
        for index in reversed(range(len(self.log.ops))):
            self._simplify(index)

    def _simplify(self, index: int) -> None:
        """All arguments of an op at their defaults, or one argument after the other as near to it as it goes."""
        if index < len(self.log.ops):
            kind = type(self.log.ops[index])
            if not self._puts(index, [kind()]):
                for name in kind.__struct_fields__:
                    while index < len(self.log.ops) and self._puts(index, simpler_in(self.log.ops[index], name)):
                        pass

    def _puts(self, index: int, candidates: Iterable[Op]) -> bool:
        """Whether any of these can replace the op at `index`."""
        ops = self.log.ops
        return any(self._accepts([*ops[:index], op, *ops[index + 1 :]]) for op in candidates)

    def _simplify_config(self) -> None:
        """Settings at their defaults: all, then those that go together, then each; of all engines, then of one."""
        defaults, ordinals = self.target.simplified, range(len(self.log.header.configs))
        for chosen in [tuple(ordinals), *([(index,) for index in ordinals] if len(ordinals) > 1 else [])]:
            for names in [(*defaults,), *self.target.coupled, *((name,) for name in defaults)]:
                configs = [
                    {name: defaults[name] if index in chosen and name in names else old for name, old in config.items()}
                    for index, config in enumerate(self.log.header.configs)
                ]
                if all(map(self._is_possible, configs)):
                    self._accepts(self.log.ops, configs)

    def _is_possible(self, config: Mapping) -> bool:
        try:
            self.target.decode(config)
        except InvalidConfig:
            return False
        return True
