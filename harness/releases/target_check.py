"""Runs that show what a target lacks or gets wrong: with drawn configurations, and with those of the shrinker.

Its settings show whether its encode and decode keep them, and what the shrinker could set them to.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from traceback import walk_tb
from typing import Any

import msgspec
from hypothesis.errors import Unsatisfiable

from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Op
from swarden.harness.core.origins import UNKNOWN_CODE
from swarden.harness.core.replay import driver_of, log_of, replay, run_log
from swarden.harness.core.target import Target, decode_all, prepare, simplified
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.releases.further_data import lacking
from swarden.harness.report.wording import counted, evidence_text, subject_text
from swarden.harness.search.campaign import FINISHED_EVERY
from swarden.harness.search.search import search, turns_of
from swarden.harness.search.shrink.simpler import Argument, is_number, nearer, simpler_values
from swarden.harness.search.traffic.machine import RunListener
from swarden.invariants.catalog import catalog_of
from swarden.invariants.events import ALL_EVENTS, TREE_KIND, Finished, FinishReason
from swarden.invariants.invariant import Invariant
from swarden.invariants.laws.lifecycle.progress import ProgressCode
from swarden.invariants.transition import Transition
from swarden.invariants.view import OPTIONAL_PARTS

RUNS_PER_SEARCH = 8
CALLS_PER_RUN = 8
EACH_RUN_FAILS = 0.5  # share of the runs above which a failure is taken for a fault of the target
REASONS = frozenset(map(str, FinishReason))
MOST_CHANGED = 3  # settings of a random shrunken configuration
TRIES = 50  # draws per accepted shrunken configuration
WRONG_TYPES = ("text", None, [1])
UNKNOWN = "no_such_setting"
Config = dict[str, Any]


@dataclass
class TargetCheck(RunListener):
    """Makes runs, each twice, and collects what they show."""

    target: Target
    problems: dict[str, str] = field(default_factory=dict)  # lines with a remedy, by what is wrong
    failures: Counter[str] = field(default_factory=Counter)  # failed runs by fingerprint
    examples: dict[str, str] = field(default_factory=dict)  # the text of the first failure of each
    evaluated: Counter[str] = field(default_factory=Counter)
    inapplicable: set[str] = field(default_factory=set)  # laws for which some runs lack data
    events: set[str] = field(default_factory=set)  # types that came
    missing: frozenset[str] = ALL_EVENTS | set(OPTIONAL_PARTS)  # parts and types that no state has
    num_runs: int = 0
    num_refused: int = 0  # configurations that `build` refuses and `decode` accepts
    logs: list[OpLog] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return False

    @property
    def aborts_at_end(self) -> bool:
        return self.num_runs % FINISHED_EVERY != 0

    def run(self, num_runs: int, seed: int) -> None:
        """Make `num_runs` runs with drawn configurations, and as many with shrunken ones."""
        prepare(self.target)
        self._check_threads()
        turns = turns_of(self.target, None)
        for batch in range(2 * -(-num_runs // RUNS_PER_SEARCH)):  # a search can end early
            if self.num_runs < num_runs:
                num_left = min(RUNS_PER_SEARCH, num_runs - self.num_runs)
                with suppress(Unsatisfiable):  # no configuration could be drawn: on_fault has the reason
                    turn = turns[batch % len(turns)]
                    search(turn, self, from_seed=seed + batch, max_runs=num_left, calls=CALLS_PER_RUN)
        drawn = [*self.logs]
        candidates = shrunken_configs(self.target, [log.header for log in drawn], random.Random(seed), self.on_fault)
        for log, header in zip(islice(cycle(drawn), num_runs), candidates, strict=False):
            self._run_shrunken(header, log.ops)

    def drive(self, header: Header) -> Driver | None:
        for config in header.configs:
            self._note(setting_problems(self.target, config))
        try:
            return driver_of(header, observe=self.look)
        except InvalidConfig as error:
            self._note([f"a drawn configuration is refused: {error}; draw only what decode and build accept"])
            return None

    def on_end(self, header: Header, driver: Driver) -> None:
        """Count a run, and make it again."""
        self.num_runs += 1
        log = log_of(header, driver)
        self.logs.append(log)
        for name, judged in driver.counts.tally.items():
            self.evaluated[name] += judged.evaluated
            self.inapplicable |= {name} if judged.not_applicable else set()
        if driver.failure is not None:
            self._count(driver.failure)
        try:
            diverged = replay(log).diverged
        except TargetFault as fault:
            self.on_fault(fault, driver)
            return
        if diverged is not None:
            remedy = "take ids from counters and the time from advance_clock, and sort sets before they are iterated"
            self.problems.setdefault("runs", f"a run differs when it is repeated: {diverged}; {remedy}")

    def on_op(self, driver: Driver) -> None:
        return

    def on_fault(self, fault: TargetFault, driver: Driver | None = None) -> None:
        self.problems.setdefault(fault.fingerprint, str(fault))

    def look(self, change: Transition) -> None:
        """Collect the events and the missing parts of a transition."""
        after, came = change.after, {kind.__name__ for kind in change.by_type}
        self.missing &= after.missing
        self.events |= came
        for name in sorted(came & after.unreported):
            self._note([f"event {name}: came, and is in unreported; take it out there"])
        for name in sorted(after.unreported - ALL_EVENTS - {law.name for law in self._catalog}):
            self._note([f"unreported has {name}, which is no type of event and no law; correct it"])
        for reason in {event.reason for event in change.events_of(Finished)} - REASONS:
            self._note([f"a request ended with {reason!r}; want one of {', '.join(sorted(REASONS))}"])

    def lines(self) -> list[str]:
        """A line with a remedy for each thing that is wrong."""
        constant = [name for name, count in self.failures.most_common() if count >= EACH_RUN_FAILS * self.num_runs]
        lines = [*self.problems.values()]
        for name in constant:
            fail = f"{self.failures[name]} of {counted(self.num_runs, 'run')} fail with it: {self.examples[name]}"
            lines.append(f"{name}: {fail}; correct the port, which is wrong rather than the engine")
        remedy = "report it, or add it to unreported, or draw configurations that reach it"
        lines += [f"event {name}: never came; {remedy}" for name in self._silent_events()[0] if not constant]
        if not self.num_runs:
            lines.append("no run was made; draw configurations from which an engine can be built")
        return lines

    def remarks(self, engine: str) -> Iterator[str]:
        """The failures of some runs, which can be bugs of the engine, and conditions of laws that were never met."""
        for name, count in self.failures.most_common():
            if count < EACH_RUN_FAILS * self.num_runs:
                fail = f"{counted(count, 'run')} failed: {self.examples[name]}"
                yield f"{name}: {fail}; a bug of the engine or of its target, see: swarden fuzz --engine {engine}"
        if self.num_refused:
            refused = counted(self.num_refused, "shrunken configuration")
            yield f"build refused {refused} that decode accepts; decode could refuse them, and earlier"
        for name in self._silent_events()[1]:
            yield f"event {name}: never came; add it to unreported, unless the engine never does what it reports"
        if unmet := self.unmet():
            yield "laws that were not judged, which is no error, with the condition that no run has met:"
            yield from (f"  {name}: {condition}" for name, condition in unmet.items())

    def laws(self) -> list[str]:
        """The invariants that were evaluated, in the order of the catalogue."""
        return [law.name for law in self._catalog if self.evaluated[law.name]]

    def unmet(self) -> dict[str, str]:
        """The laws that lack no data, each with the condition that no run has met, as a question."""
        return {
            law.name: f"{(law.given.__doc__ or '').partition('?')[0]}?"
            for law in self._catalog
            if law.given is not None and not self.evaluated[law.name] and not lacking(law, self.missing)
        }

    def _silent_events(self) -> tuple[list[str], list[str]]:
        """The event types that never came, although the port does not declare it: wrong ones and possible ones.

        A law that is due after such an event is never due, which is wrong unless some configurations are declared to
        have none.  A law that needs such an event beside others assumes that it did not happen, which can be true
        unless the law has failed.
        """
        silent, failed = ALL_EVENTS - self.missing - self.events, {name.partition("/")[0] for name in self.failures}
        wrong, possible = set[str](), set[str]()
        for law in self._catalog:
            one_of = {kind.__name__ for kind in law.on}
            begins = one_of if one_of <= silent else set[str]()
            wrong |= begins if law.name not in self.inapplicable else set()
            wrong |= law.needs & silent if law.name in failed else set()
            possible |= begins | (law.needs & silent)
        return sorted(wrong), sorted(possible - wrong)

    @property
    def _catalog(self) -> Sequence[Invariant]:
        return catalog_of(self.target.contracts).invariants

    def _run_shrunken(self, header: Header, ops: Sequence[Op]) -> None:
        try:
            driver = run_log(OpLog(header, ops), keep_digests=True, observe=lambda _, change: self.look(change))
        except TargetFault as fault:
            settings = " and ".join(changed_settings(self.target, config) for config in header.configs)
            line = f"decode accepts {settings}, and then {fault}, or let decode refuse this with InvalidConfig"
            self.problems.setdefault(fault.fingerprint, line)
        except InvalidConfig:  # a refusal that needs an imported release
            self.num_refused += 1
        else:
            self.on_end(header, driver)

    def _count(self, failure: Failure) -> None:
        name = failure.fingerprint
        self.failures[name] += 1
        first = next(iter(failure.violations), None)
        text = f"{subject_text(first.subject)}: {evidence_text(first)}" if first is not None else str(failure.error)
        if failure.error is not None and failure.frames:  # the innermost place can be in a stand-in of the target
            frame, line = list(walk_tb(failure.error.__traceback__))[-1]
            text = f"{' '.join(text.split())}, at {UNKNOWN_CODE.place(frame, line)}"
        self.examples.setdefault(name, text)
        for violation in failure.violations:
            owners: Sequence[Any] = violation.values.get("owners", ())  # type: ignore[assignment]  # of its code
            if violation.code is ProgressCode.UNITS_LEFT and {owner.kind for owner in owners} == {TREE_KIND}:
                pool = violation.subject.pool
                self._note([f"pool {pool}: has cached units after a drain; let clear of the port evict them"])

    def _check_threads(self) -> None:
        """Note a problem if the engine imports torch with several threads: its steps would wait for busy cores."""
        torch, package = sys.modules.get("torch"), self.target.code.package
        modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]
        if (
            torch is not None
            and any(vars(module).get("torch") is torch for module in modules)
            and torch.get_num_threads() > 1
        ):
            remedy = "call torch.set_num_threads(1) in prepare_process; on busy cores a step takes 70 times as long"
            self._note([f"torch has {torch.get_num_threads()} threads; {remedy}"])

    def _note(self, problems: Sequence[str] | Iterator[str]) -> None:
        """Keep the first line of each kind."""
        for problem in problems:
            self.problems.setdefault(problem.partition(":")[0], problem)


def changed_settings(target: Target, config: Config) -> str:
    """The settings that differ from their defaults, as text."""
    changed = {name: value for name, value in config.items() if value != target.defaults.get(name)}
    return msgspec.json.encode(changed).decode()


def setting_problems(target: Target, config: Config) -> Iterator[str]:
    """A line with a remedy for each thing that is wrong with the JSON form of a drawn configuration."""
    try:
        read = msgspec.json.decode(msgspec.json.encode(config))
    except TypeError as error:
        yield f"encode gives no JSON: {error}; give numbers, texts, lists and objects"
        return
    try:
        again = _encoded_again(target, read)
    except InvalidConfig as error:
        yield f"decode refuses what encode gives: {error}; let decode(encode(config)) be the same configuration"
        return
    for name in sorted({*config, *again}):
        if config.get(name) != again.get(name):
            what = f"{name} is {config.get(name)!r} before and {again.get(name)!r} after encode, JSON and decode"
            yield f"settings are lost: {what}; let decode(encode(config)) be the same configuration"
    for name in sorted(config.keys() - target.defaults.keys()):
        yield f"setting {name}: encode has it, and defaults has not; add it there, or the shrinker never simplifies it"
    if not _is_refused(target, {**config, UNKNOWN: 1}):
        yield "an unknown setting is accepted: let decode raise InvalidConfig for names that it does not know"
    for name, value in product(config, WRONG_TYPES):
        try:
            _is_refused(target, {**config, name: value})
        except TargetFault as fault:
            yield f"decode fails on values of another type: {name} {value!r}: {fault}, let it raise InvalidConfig"


def shrunken_configs(
    target: Target, headers: Sequence[Header], source: random.Random, on_fault: Callable[[TargetFault], None]
) -> Iterator[Header]:
    """An endless series of headers with simpler settings that decode accepts; each coupled group and setting first.

    A fault of decode is passed on.
    """
    for configs, header in _simpler(target, headers, source):
        try:
            with blamed_on(target.name, "decode"):
                decode_all(target, configs)
        except InvalidConfig:
            continue
        except TargetFault as fault:
            on_fault(fault)
            continue
        yield msgspec.structs.replace(header, configs=configs)


def _simpler(target: Target, headers: Sequence[Header], source: random.Random) -> Iterator[tuple[list[Config], Header]]:
    defaults = simplified(target)
    groups = [*target.coupled, *((name,) for name in defaults)]
    changes: list[Config] = [{name: defaults[name] for name in group if name in defaults} for group in groups]
    changes += [{name: value} for value in (0, 1) for name, old in defaults.items() if is_number(old)]
    for index, change in enumerate(changes if headers else ()):
        header = headers[index % len(headers)]
        yield [{**config, **change} for config in header.configs], header
    for _ in range(TRIES * len(headers) if defaults else 0):
        header = source.choice(headers)
        names = source.sample(sorted(defaults), min(len(defaults), source.randint(1, MOST_CHANGED)))
        yield [{**config, **_simpler_settings(target, config, names, source)} for config in header.configs], header


def _simpler_settings(target: Target, config: Config, names: Sequence[str], source: random.Random) -> Config:
    changes = {}
    for name in names:
        default = target.defaults[name]
        value = config.get(name, default)
        lower = nearer(value, 0) if is_number(value) else ()
        changes[name] = source.choice([default, *simpler_values(Argument(name, value, default)), *lower])
    return changes


def _encoded_again(target: Target, mapping: Config) -> Config:
    with blamed_on(target.name, "decode"):
        config = target.decode(mapping)
    with blamed_on(target.name, "encode"):
        return target.encode(config)


def _is_refused(target: Target, mapping: Config) -> bool:
    try:
        with blamed_on(target.name, "decode"):
            target.decode(mapping)
    except InvalidConfig:
        return True
    return False
