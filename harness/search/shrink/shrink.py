"""The shrinker: makes a failing op-log smaller as long as it fails in the same way.

It does not depend on an engine: a predicate runs each candidate, and a candidate that fails replaces the log.  A log is
smaller if it has fewer ops, then fewer engine steps, then arguments closer to their defaults, then fewer settings that
differ from the default, then lower numbers in these settings.

A shrink that its budget has ended can go on from its smallest log, and does not repeat candidates that have passed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, product
from time import process_time
from typing import Any

import msgspec

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import InvalidConfig, RunTooLarge, UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Drain, Op, Step, Submit
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import Target, decode_all, simplified
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.search.shrink.simpler import (
    drains_as_steps,
    is_number,
    joined,
    merged,
    nearer,
    replaced,
    shared_arguments,
    simpler_branches,
    simpler_in,
    simpler_values,
    size,
    with_settings,
    without_one_handle,
)

MAX_OPS_FOR_PAIRS = 16  # 120 pairs
LONG_RESULT = 8  # ops
LONG_IN_A_LARGE_ENGINE = 4  # ops; fewer may fail in a smaller engine
SHARE_OF_OPS = 0.75  # of the budget, after which the settings are simplified first
NEEDED = (Submit, Step)  # the kinds of ops without which nothing happens
STEPS_OF_A_DRAIN = 1000  # in `measure`; a drain makes an unknown number of steps, so it counts more than any Step op
Config = dict[str, Any]
Passes = Sequence[Callable[[], None]]


class DoesNotFail(UsageError):
    """The log does not fail with the expected failure, so it cannot be shrunk."""


class BudgetSpent(Exception):
    """The budget is used up, so no further candidate is run."""


@dataclass(frozen=True, slots=True)
class ShrinkBudget:
    """The limits of a shrink; the first one that is reached ends it."""

    executions: int = 2000
    cpu_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing log, without digests, and the cost of the shrink; `complete` unless the budget ended it.

    `failure` is that of the log, None if there was no budget to run it.  `executions` counts the candidates that were
    run, `op_calls` their executed ops.  `passed` has the hashes of the candidates that were run and did not fail,
    those of earlier parts of the shrink too.  `target_faults` are those of candidates, which were not run to their end.
    """

    log: OpLog
    executions: int
    op_calls: int
    cpu_seconds: float
    complete: bool
    failure: Failure | None
    passed: frozenset[str]
    target_faults: Sequence[str] = ()


def shrink(
    log: OpLog, still_fails: Callable[[OpLog], Failure | None], budget: ShrinkBudget, *, passed: Iterable[str] = ()
) -> Shrunk:
    """Make `log` smaller as long as `still_fails` returns a failure; raises DoesNotFail if it does not fail at all.

    To continue a shrink of this log, give the candidates that have `passed` in it.
    """
    defaults = simplified(target_for(log.header))
    search = _Search(OpLog(log.header, list(log.ops)), still_fails, budget, {*passed}, {*passed}, defaults)
    complete = True
    try:
        search.run()
    except BudgetSpent:
        complete = False
    return Shrunk(
        search.log,
        search.executions,
        search.op_calls,
        search.cpu_seconds,
        complete,
        search.failure,
        frozenset(search.passed),
        [*search.target_faults.values()],
    )


def measure(log: OpLog) -> tuple[int, int, int, int, int]:
    """The size of a log: its ops, engine steps, distance of the arguments from their defaults, changed settings, and
    the sum of the numbers in these settings.
    """
    steps = sum(op.count if isinstance(op, Step) else STEPS_OF_A_DRAIN * isinstance(op, Drain) for op in log.ops)
    defaults = simplified(target_for(log.header))
    changed = [value for config in log.header.configs for name, value in config.items() if value != defaults.get(name)]
    numbers = sum(value for value in changed if is_number(value))
    return len(log.ops), steps, sum(map(size, log.ops)), len(changed), numbers


@dataclass
class _Search:
    """The smallest failing log so far, its failure, and the candidates that passed."""

    log: OpLog
    still_fails: Callable[[OpLog], Failure | None]
    budget: ShrinkBudget
    passed: set[str]
    tried: set[str]  # and those that cannot be run to their end
    defaults: Config  # of the settings that may be simplified
    failure: Failure | None = None
    executions: int = 0
    op_calls: int = 0
    target_faults: dict[str, str] = field(default_factory=dict)  # the first with each fingerprint
    share: float = SHARE_OF_OPS  # of the budget, that may be used now
    _began: float = field(default_factory=process_time)

    @property
    def cpu_seconds(self) -> float:
        return process_time() - self._began

    @property
    def _length(self) -> tuple[int, int]:
        """The ops and the engine steps of the log."""
        return measure(self.log)[:2]

    @property
    def target(self) -> Target:
        return target_for(self.log.header)

    @property
    def _is_large(self) -> bool:
        """Whether a number of a setting is above its default."""
        defaults, configs = simplified(self.target), self.log.header.configs
        pairs = [(value, defaults.get(name, value)) for config in configs for name, value in config.items()]
        return any(is_number(value) and value > (default or 0) for value, default in pairs)

    def run(self) -> None:
        """Shrink the log, then set its settings to their defaults until each other value is needed.

        A part of the budget is kept for the settings; the rest of it is for the ops again.
        """
        if not self._run(self.log):
            raise DoesNotFail("nothing to shrink: the op-log does not fail, or not in this way")
        try:
            self._run_passes()
        except BudgetSpent:
            self.share = 1.0
            self._settle_config()
            self._run_passes()
        self.share = 1.0
        self._settle_config()

    def _run_passes(self) -> None:
        """Make the log minimal; a long result is shrunk again, in another order and engine, and the smaller stays."""
        self._keep_last()
        self._delete_kinds()
        whole = self.log
        self._delete_chunks(from_end=False)
        self._make_minimal()
        if len(self.log.ops) > (LONG_IN_A_LARGE_ENGINE if self._is_large else LONG_RESULT):
            small, failure, self.log = self.log, self.failure, whole
            try:
                self._simplify_config()
                self._delete_chunks(from_end=True)
                self._make_minimal(self._lower_config)
            finally:
                if measure(small) <= measure(self.log):
                    self.log, self.failure = small, failure

    def _make_minimal(self, *lower: Callable[[], None]) -> None:
        """Shorten the log, then simplify it, in turn, until a simpler log cannot be shortened any more."""
        shorter = (self._delete, self._shorten, self._merge)
        of_config = (self._simplify_config, *lower)
        simpler = (*of_config, self._simplify_together, self._simplify_each, *of_config)
        self._shorten_by(shorter)
        self._call_all(simpler)
        while self._shorten_by(shorter) or self._shorten_by([self._delete_pairs]):
            self._call_all(simpler)

    def _call_all(self, passes: Passes) -> None:
        for each in passes:
            each()

    def _shorten_by(self, passes: Passes) -> bool:
        """Repeat passes until none of them makes the log shorter, in ops or in steps; true if one did."""
        first, last = self._length, None
        while self._length != last:
            last = self._length
            self._call_all(passes)
        return self._length < first

    # --- candidates

    def _accepts(self, ops: Sequence[Op], configs: list[Config] | None = None) -> bool:
        """Run a candidate that is smaller than the log and has not passed yet; true if it fails and becomes the log."""
        header = self.log.header if configs is None else msgspec.structs.replace(self.log.header, configs=configs)
        candidate = OpLog(header, list(ops))
        if not ops or measure(candidate) >= measure(self.log) or (key := candidate.key) in self.tried:
            return False
        has_failed = False
        with self._noting_faults():
            has_failed = self._run(candidate)
            self.passed |= set() if has_failed else {key}
        self.tried.add(key)
        return has_failed

    def _run(self, candidate: OpLog) -> bool:
        """Run a candidate; if it fails, it becomes the smallest log, without the ops after the failing op."""
        executions, cpu_seconds = self.budget.executions * self.share, self.budget.cpu_seconds * self.share
        if self.executions >= executions or self.cpu_seconds >= cpu_seconds:
            raise BudgetSpent
        self.executions += 1
        failure = self.still_fails(candidate)
        if failure is None:
            self.op_calls += len(candidate.ops)
            return False
        self.op_calls += failure.op_index + 1
        self.log, self.failure = OpLog(candidate.header, candidate.ops[: failure.op_index + 1]), failure
        return True

    # --- passes

    def _keep_last(self) -> None:
        """Keep only the last ops, twice as many in each attempt: most ops of a long run do not cause its failure."""
        length = 1
        while length < len(self.log.ops) and not self._accepts(self.log.ops[-length:]):
            length *= 2

    def _delete_kinds(self) -> None:
        """Delete all ops of a kind, except for the failing op; first of all kinds that a run can do without."""
        ops = self.log.ops
        kinds = [kind for kind in dict.fromkeys(map(type, ops)) if kind not in NEEDED]
        for chosen in (kinds, *([kind] for kind in kinds)):
            self._accepts([*(op for op in self.log.ops[:-1] if type(op) not in chosen), self.log.ops[-1]])

    def _delete_chunks(self, *, from_end: bool) -> None:
        """Delete chunks of half of the ops, a quarter and so on; the last op is the failing op, and is kept."""
        length = len(self.log.ops) // 2
        while length > 1:
            num_kept = 0
            while num_kept < (last := len(self.log.ops) - 1):
                ops = self.log.ops
                start = max(0, last - num_kept - length) if from_end else num_kept
                end = last - num_kept if from_end else min(last, num_kept + length)
                num_kept += 0 if self._accepts([*ops[:start], *ops[end:]]) else length
            length //= 2

    def _delete(self) -> None:
        """Delete single ops, from the end, until each is needed."""
        index = needed = 0
        while needed < len(self.log.ops):
            ops = self.log.ops
            index = (index or len(ops)) - 1
            is_deleted = self._accepts([*ops[:index], *ops[index + 1 :]])
            needed = 0 if is_deleted else needed + 1
            index = min(index, len(self.log.ops))

    def _delete_pairs(self) -> None:
        """Delete two ops at a time, not necessarily adjacent ones."""
        ops = self.log.ops
        if len(ops) <= MAX_OPS_FOR_PAIRS:
            pairs = combinations(range(len(ops)), 2)
            any(self._accepts([op for index, op in enumerate(ops) if index not in pair]) for pair in pairs)

    def _shorten(self) -> None:
        """Replace drains by steps, and reduce the steps of the last op.

        These passes are early, because a candidate that does not fail executes all its steps.
        """
        self._accepts(drains_as_steps(self.log.ops))
        if isinstance(self.log.ops[-1], Step):
            self._simplify(len(self.log.ops) - 1)

    def _merge(self) -> None:
        self._repeat(merged)
        self._repeat(joined)
        self._repeat(without_one_handle)

    def _repeat(self, candidates: Callable[[Sequence[Op]], Iterator[list[Op]]]) -> None:
        while any(self._accepts(ops) for ops in candidates(self.log.ops)):
            pass

    def _simplify_together(self) -> None:
        """Simplify a value in all ops that share it: the failure may only need the values to be equal."""
        self._accepts([type(op)() for op in self.log.ops])
        for argument in shared_arguments(self.log.ops):
            any(self._accepts(replaced(self.log.ops, argument, value)) for value in simpler_values(argument))
        self._repeat(simpler_branches)

    def _simplify_each(self) -> None:
        """Simplify one op at a time, the last first."""
        for index in reversed(range(len(self.log.ops))):
            self._simplify(index)

    def _simplify(self, index: int) -> None:
        """Set all arguments of an op to their defaults, or each argument as close to it as the failure allows."""
        if index < len(self.log.ops):
            kind = type(self.log.ops[index])
            if not self._replace(index, [kind()]):
                for name in kind.__struct_fields__:
                    while index < len(self.log.ops) and self._replace(index, simpler_in(self.log.ops[index], name)):
                        pass

    def _replace(self, index: int, candidates: Iterable[Op]) -> bool:
        """Replace the op at `index` by the first candidate that still fails; false if none does."""
        ops = self.log.ops
        return any(self._accepts([*ops[:index], op, *ops[index + 1 :]]) for op in candidates)

    def _settle_config(self) -> None:
        """Simplify the settings, again after each change: one may be needed only beside another one."""
        last: list[Config] = []
        while self.log.header.configs != last:
            last = self.log.header.configs
            self._simplify_config()

    def _simplify_config(self) -> None:
        """Set settings to their defaults: all, then each coupled group, then each one; in all engines, then in one.

        A setting that must not have its default alone is set together with each other one.
        """
        ordinals = range(len(self.log.header.configs))
        for chosen in [tuple(ordinals), *([(index,) for index in ordinals] if len(ordinals) > 1 else [])]:
            for names in [(*self.defaults,), *self.target.coupled]:
                self._reset(chosen, names)
            refused = [name for name in self.defaults if not self._reset(chosen, (name,))]
            for names in product(refused, self.defaults):
                self._reset(chosen, names)

    def _reset(self, chosen: Sequence[int], names: Sequence[str]) -> bool:
        """Set these settings of some engines to their defaults if the log still fails; false if that is not valid."""
        values = {name: default for name, default in self.defaults.items() if name in names}
        configs = with_settings(self.log.header.configs, chosen, values)
        if is_valid := self._are_valid(configs):
            self._accepts(self.log.ops, configs)
        return is_valid

    def _lower_config(self) -> None:
        """Lower the numbers that differ from the default: fewer requests and pages fill a smaller engine."""
        for index, config in enumerate(self.log.header.configs):
            for name, value in config.items():
                for lower in nearer(value, 0) if is_number(value) and value != self.defaults.get(name, value) else ():
                    configs = with_settings(self.log.header.configs, [index], {name: lower})
                    if self._are_valid(configs) and self._accepts(self.log.ops, configs):
                        break

    def _are_valid(self, configs: Sequence[Config]) -> bool:
        with self._noting_faults(), blamed_on(self.target.name, "decode"):
            decode_all(self.target, configs)
            return True
        return False

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        """Leave the block early if no engine can be built or run there; a fault of the target is kept."""
        try:
            yield
        except TargetFault as fault:
            self.target_faults.setdefault(fault.fingerprint, str(fault))
        except (InvalidConfig, RunTooLarge):
            pass
