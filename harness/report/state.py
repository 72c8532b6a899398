"""The whole state of one engine as text."""

from swarden.harness.report.wording import conservation_line
from swarden.invariants.view import Snapshot


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
            f"frontier {max(record.frontiers)}, "
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
