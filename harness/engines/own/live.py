"""Our engine for the strict check: its terms, the holders of its units, its state and the header of its op-logs."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.errors import AccountingError
from swarden.harness.core.oplog import Header
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.capture import EngineCapture, awaits_another
from swarden.harness.engines.own.content.level import content_of
from swarden.harness.engines.own.outside import Outside
from swarden.harness.engines.own.terms import EngineTerms
from swarden.harness.strict.live import Compare, Live, LivePool
from swarden.harness.strict.owners import OwnerTable, leaked
from swarden.invariants.catalog import CONTRACTS
from swarden.invariants.events import Owner
from swarden.invariants.view import FENCE, FREE
from swarden.invariants.violation import Violation

UNITS_PER_STEP = 1024  # walked on average


def live_of(engine: Engine) -> Live:
    memory, scheduler = engine.memory, engine.scheduler
    ledgers = (*memory.ledgers.ledgers, *(memory.host.ledgers if memory.host is not None else ()))
    rows, outside = memory.table.rows, Outside([pool.name for pool in memory.pools])
    terms, capture = EngineTerms(engine, outside), EngineCapture(engine)
    config = engine.config
    return Live(
        error=AccountingError,
        handlers=outside.handlers,
        terms=terms,
        uncached=terms.uncached,
        pools=[
            *[LivePool(ledger.name, "page", ledger.capacity, ledger) for ledger in ledgers],
            LivePool(rows.name, "row", rows.capacity, rows),
        ],
        peers=[(memory.ledgers.anchor.name, follower.name) for follower in memory.ledgers.followers],
        holders=partial(_holders, engine),
        capture=lambda step, _: capture.capture(step=step, outside=outside.held()),
        contracts=CONTRACTS,
        units_per_step=UNITS_PER_STEP,
        needs_no_pass=lambda: not engine.has_work or awaits_another(engine),
        is_paused=lambda: scheduler.is_paused,
        header=partial(_header, config),
        max_recorded_ops=config.max_recorded_ops,
        is_empty=lambda: not engine.has_work and all(ledger.num_free == ledger.capacity for ledger in (*ledgers, rows)),
        records_time=config.request_timeout_ms is not None or config.session_timeout_ms is not None,
        session_tokens=lambda session: scheduler.custody.sessions.by_id[session].tokens,
        pressure=outside.counts,
        content=partial(content_of, engine),
    )


def _holders(engine: Engine, tables: Mapping[str, OwnerTable]) -> Compare:
    """An owner without a row must own no unit, and a taken row must have a record."""
    custody, rows = engine.scheduler.custody, tables[engine.memory.table.rows.name]
    row_ledger = engine.memory.table.rows

    def compare(moved: Collection[Owner]) -> Sequence[Violation]:
        violations: list[Violation] = []
        for owner in moved:
            if not rows.counts[owner]:
                violations += [
                    violation for table in tables.values() if table.counts[owner] for violation in leaked(table, owner)
                ]
        records = custody.with_row
        if rows.capacity - row_ledger.num_free - rows.counts[FENCE] != len(records):
            orphaned = rows.counts.keys() - {record.owner for record in records} - {FREE, FENCE}
            violations += [violation for owner in sorted(orphaned) for violation in leaked(rows, owner)]
        return violations

    return compare


def _header(config: EngineConfig) -> Header:
    target = target_of(OWN)
    return Header(
        engine=OWN,
        version=target.version(),
        configs=[{**config.to_mapping(), "role": "both"}],
        source_hash=target.source_hash(),
        mutant=next((mutant.id for mutant in target.catalog if mutant.patch.is_planted), None),
    )
