"""swarden show: an op-log as a table of steps, or the whole state at one of them."""

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.table import Table

from harness.commands.console import OUT
from harness.driver import Driver
from harness.errors import UsageError
from harness.oplog import OpLog
from harness.ops import Drain, Op, Step, name_of
from harness.replay import run_log
from harness.report import failure_text
from invariants.base import Transition
from invariants.pools import conservation_terms
from invariants.view import Snapshot


def show(
    path: Annotated[Path, typer.Argument(help="an op-log")],
    *,
    step: Annotated[int | None, typer.Option(min=0, help="the whole state after this engine step")] = None,
    engine: Annotated[int | None, typer.Option(min=0, help="of the log's engines only this one, from 0")] = None,
) -> None:
    """The op-log as a table of ops and steps with pool occupancy; with --step the state at one step."""
    log = OpLog.load(path)
    if engine is not None and engine >= len(log.header.engines):
        raise UsageError(f"{path}: has no engine {engine}; the last is {len(log.header.engines) - 1}")
    rows: list[Row] = []

    def hear(driver: Driver, change: Transition) -> None:
        rows.append(Row(len(driver.ops), driver.ops[-1], driver.moved, change.after))

    failure = run_log(log, hear=hear).failure
    rows = [row for row in rows if engine in (None, row.engine)]
    if step is None:
        for shown in sorted({row.engine for row in rows}):
            if len(log.header.engines) > 1:
                OUT.print(f"engine {shown}", markup=False)
            OUT.print(_table([row for row in rows if row.engine == shown]))
        if failure is not None:
            OUT.print(failure_text(failure), markup=False)
        return
    at_step = {row.engine: row.snapshot for row in reversed(rows) if row.snapshot.step == step}
    if not at_step:
        last = max((row.snapshot.step for row in rows), default=0)
        raise UsageError(f"{path}: has no engine step {step}; the last is {last}")
    for shown, snapshot in sorted(at_step.items()):
        if len(log.header.engines) > 1:
            OUT.print(f"engine {shown}", markup=False)
        OUT.print(state_text(snapshot), markup=False)


class Row(NamedTuple):
    """An op by its number, and the state of the engine that it moved after one transition of it."""

    number: int
    op: Op
    engine: int
    snapshot: Snapshot


def _table(rows: list[Row]) -> Table:
    pools = rows[0].snapshot.pools if rows else ()
    table = Table("op", "", "step", "waiting", "chunked", "running", *[f"{pool.name} used" for pool in pools])
    for row in rows:
        places = [request.place for request in row.snapshot.requests or ()]
        used = [f"{pool.capacity - len(pool.free)}/{pool.capacity}" for pool in row.snapshot.pools]
        counts = [str(places.count(place)) for place in ("waiting", "chunked", "running")]
        table.add_row(str(row.number), _op_text(row.op), str(row.snapshot.step), *counts, *used)
    return table


def _op_text(op: Op) -> str:
    if isinstance(op, Step | Drain):
        return name_of(op)
    arguments = {name: value for name, value in msgspec.to_builtins(op).items() if name != "op"}
    return " ".join([name_of(op), *(f"{name}={value}" for name, value in arguments.items())])


def state_text(snapshot: Snapshot) -> str:
    """Everything that is known of one state, a line a thing."""
    lines = [f"step {snapshot.step}", *map(conservation_terms, snapshot.pools)]
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
