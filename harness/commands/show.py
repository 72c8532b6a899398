"""swarden show: prints an op-log as a table of steps, or the state after one of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.commands.console import OUT
from harness.commands.layout import columns_of, print_lines
from harness.commands.versions import load_for_here
from harness.core.driver import Driver, Failure
from harness.core.errors import UsageError
from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Fetch, Insert, Lock, Op, Recipe, Step, Submit, Turn, name_of
from harness.core.replay import run_log
from harness.report.equations import conservation_line
from harness.report.heading import (
    configuration_line,
    engine_name,
    failed_line,
    mutant_lines,
    opening_lines,
    request_lines,
)
from harness.report.story import Line, Part, failure_lines
from invariants.transition import Transition
from invariants.view import Snapshot

MAX_TOKENS = 8  # token ids of a prompt that a row shows
PLACES = ("waiting", "chunked", "running")
SHOWN_APART = {"op", "engine", "recipe", "tokens", "max_new_tokens"}  # arguments that are not shown as "name value"


def show(
    path: Annotated[Path, typer.Argument(help="an op-log")],
    *,
    step: Annotated[int | None, typer.Option(min=0, help="print the state after this engine step")] = None,
    engine: Annotated[int | None, typer.Option(min=0, help="only this engine of the log, counted from 0")] = None,
) -> None:
    """Print an op-log as a table of ops and steps with pool occupancy; with --step the state after one step."""
    log = load_for_here(path)
    if engine is not None and engine >= len(log.header.configs):
        raise UsageError(f"{path}: has no engine {engine}; the last is {len(log.header.configs) - 1}")
    shown = range(len(log.header.configs)) if engine is None else [engine]
    rows: list[Row] = []
    at_step: dict[int, Snapshot] = {}  # by engine, the first state after the step to print

    def add_row(driver: Driver, change: Transition) -> None:
        rows.append(Row.of(driver.ops, driver.acting_system, change.after))
        if change.after.step == step and driver.acting_system in shown:
            at_step.setdefault(driver.acting_system, change.after)

    driver = run_log(log, observe=add_row, trace_origins=True)
    if driver.failure is not None and driver.failure.error is not None:
        rows.append(_raised_row(driver, driver.failure, driver.failure.error))
    if step is None:
        _print_log(log, shown, rows, driver)
        return
    if not at_step:
        last = max((row.step for row in rows if row.engine in shown), default=0)
        named = "" if engine is None else f"{engine_name(log.header, engine)}: "
        raise UsageError(f"{path}: {named}has no engine step {step}; the last is {last}")
    _print_heading(mutant_lines(log.header))
    for one, snapshot in sorted(at_step.items()):
        _print_name(log.header, one)
        OUT.print(state_text(snapshot), markup=False)


class PoolUse(NamedTuple):
    """The pages of a pool that are not free."""

    name: str
    used: int
    capacity: int


class Row(NamedTuple):
    """An op with its number, from 1, and figures of an engine after one transition of the op.

    `places` has the requests of each of PLACES, and is empty if the engine does not show them.  `raised` is the type of
    the engine's error in the op, or "".
    """

    number: int
    op: Op
    engine: int
    step: int
    places: Sequence[int]
    pools: Sequence[PoolUse]
    raised: str = ""

    @classmethod
    def of(cls, ops: Sequence[Op], engine: int, state: Snapshot, raised: str = "") -> "Row":
        """The row of the last op; it keeps nothing of the state, which can be large."""
        found = [request.place for request in state.requests or ()]
        places = [found.count(place) for place in PLACES] if state.requests is not None else []
        pools = [PoolUse(pool.name, pool.capacity - len(pool.free), pool.capacity) for pool in state.pools]
        return cls(len(ops), ops[-1], engine, state.step, places, pools, raised)


def _raised_row(driver: Driver, failure: Failure, error: Exception) -> Row:
    """The op in which the engine raised an error, with the last state before the error."""
    return Row.of(driver.ops, failure.engine, failure.transition.after, type(error).__name__)


def _print_log(log: OpLog, engines: Sequence[int], rows: list[Row], driver: Driver) -> None:
    """The heading, a table for each of the engines, and the failure."""
    header, failure = log.header, driver.failure
    _print_heading(opening_lines(header))
    for engine in engines:
        _print_engine(header, engine, driver)
        if own := [row for row in rows if row.engine == engine]:
            OUT.print(_table(own), soft_wrap=False, width=columns_of(OUT))
    if failure is not None:
        if failure.engine not in engines:
            _print_engine(header, failure.engine, driver)
        named = f"{engine_name(header, failure.engine)} " if len(header.configs) > 1 else ""
        OUT.print(f"{named}{failed_line(failure)}", markup=False)
        print_lines(OUT, failure_lines(failure, expected=header.expected))


def _print_engine(header: Header, engine: int, driver: Driver) -> None:
    """The name of an engine if there are several, its configuration and its requests."""
    _print_name(header, engine)
    _print_heading([configuration_line(header, engine), *request_lines(driver.systems[engine].reference)])


def _print_name(header: Header, engine: int) -> None:
    if len(header.configs) > 1:
        OUT.print(engine_name(header, engine), markup=False)


def _print_heading(lines: Iterable[str]) -> None:
    print_lines(OUT, [Line(Part.HEADING, line) for line in lines])


def _table(rows: list[Row]) -> Table:
    """The ops and steps of one engine; the column of a pool has its used pages, and its capacity in the head."""
    first = rows[0]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("op", justify="right")
    table.add_column("", overflow="fold")
    pools = [f"{pool.name}\nof {pool.capacity}" for pool in first.pools]
    for name in ("step", *PLACES[: len(first.places)], *pools):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        raised = f" raised {row.raised}" if row.raised else ""
        figures = (row.step, *row.places, *(pool.used for pool in row.pools))
        table.add_row(str(row.number), f"{_op_text(row.op)}{raised}", *map(str, figures))
    return table


def _op_text(op: Op) -> str:
    """An op in words: its prompt first, then each argument that is not the default."""
    if isinstance(op, Step | Drain):
        return name_of(op)
    words = []
    if isinstance(op, Submit | Turn):
        words = [_prompt_text(op.recipe, op.tokens), f"{op.max_new_tokens} new"]
    elif isinstance(op, Insert | Lock | Fetch):
        words = [_prompt_text(op.recipe)]
    for name, value in msgspec.to_builtins(op).items():
        if name not in SHOWN_APART:
            words.append(f"{name} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    return f"{name_of(op)} {', '.join(words)}".rstrip()


def _prompt_text(recipe: Recipe, tokens: Sequence[int] | None = None) -> str:
    """The first token ids, or the recipe, as in "12 tokens by path 0.1.1 after prompt 3 less 2"."""
    if tokens is not None:
        more = f" and {len(tokens) - MAX_TOKENS} more" if len(tokens) > MAX_TOKENS else ""
        return f"tokens {' '.join(map(str, tokens[:MAX_TOKENS]))}{more}"
    own = f"{len(recipe.path) * recipe.stretch} tokens by path {'.'.join(map(str, recipe.path))}"
    after = "" if recipe.continues is None else f" after prompt {recipe.continues}"
    return f"{own}{after}{f' less {recipe.cut}' if recipe.cut else ''}"


def state_text(snapshot: Snapshot) -> str:
    """A state as text: the pools, requests, passes in flight, records and nodes of the tree."""
    lines = [f"step {snapshot.step}", *map(conservation_line, snapshot.pools)]
    lines += [f"{pool.name} free, in order: {list(pool.free)}" for pool in snapshot.pools]
    for request in snapshot.requests or ():
        lines.append(
            f"request r{request.id}: {request.place}, prompt {request.prompt_len}, "
            f"outputs {request.num_outputs} of {request.max_new_tokens}, namespace {request.namespace}, "
            f"priority {request.priority}"
        )
    for view in snapshot.launches or ():
        computed = ", ".join(f"r{request} [{start}, {end})" for request, start, end in view.entries)
        lines.append(f"launch {view.launch} in flight: {computed}")
    if snapshot.is_paused:
        lines.append("paused")
    for record in snapshot.records or ():
        lines.append(
            f"record of {record.owner}: row {record.row}, protected {record.protected_len}, "
            f"committed {record.committed_len}, launched {record.launched_len}, allocated {record.allocated_len}, "
            f"frontier {record.frontier}, "
            f"lock {record.receipt}"
        )
        for component, units in zip(snapshot.components, record.units, strict=True):
            lines.append(f"  {component.pool}: {list(units)}")
    for node in snapshot.nodes or ():
        held = ", ".join(
            f"{component.pool} {list(units) if live else 'tombstone'} locks {locks}"
            for component, units, live, locks in zip(
                snapshot.components, node.units, node.live, node.locks, strict=True
            )
        )
        lines.append(f"node n{node.id} under n{node.parent}: [{node.start}, {node.end}) {held}, used {node.last_used}")
    return "\n".join(lines)
