"""Owners outside of the engine that hold units of its pools."""

from collections.abc import Sequence

from swarden.harness.strict.live import Handlers
from swarden.invariants import view
from swarden.invariants.events import (
    COPY_JOB_KINDS,
    HANDOVER_KIND,
    REQUEST_KIND,
    SESSION_KIND,
    TREE_KIND,
    Freed,
    Given,
    Owner,
    Taken,
)

OWN_KINDS = frozenset({REQUEST_KIND, SESSION_KIND, HANDOVER_KIND, TREE_KIND, *COPY_JOB_KINDS})


class Outside:
    """The units of owners that are no part of the engine: no request, session, transfer, tree or copy job."""

    def __init__(self) -> None:
        self._units: dict[str, dict[Owner, list[int]]] = {}

    @property
    def handlers(self) -> Handlers:
        return {Taken: self._taken, Given: self._given, Freed: self._freed}

    def count(self, pool: str) -> int:
        return sum(map(len, self._units[pool].values())) if pool in self._units else 0

    def holdings(self, pool: str) -> list[view.Holding]:
        """The holding of each outside owner in a pool."""
        held = self._units.get(pool, {})
        return [view.Holding(owner, tuple(units), cached=False) for owner, units in held.items() if units]

    def _taken(self, event: Taken) -> None:
        if event.owner.kind not in OWN_KINDS:
            self._add(event.pool, event.owner, event.units)

    def _given(self, event: Given) -> None:
        if event.from_owner.kind not in OWN_KINDS:
            self._drop(event.pool, event.from_owner, event.units)
        if event.to_owner.kind not in OWN_KINDS:
            self._add(event.pool, event.to_owner, event.units)

    def _freed(self, event: Freed) -> None:
        if event.owner.kind not in OWN_KINDS:
            self._drop(event.pool, event.owner, event.units)

    def _add(self, pool: str, owner: Owner, units: Sequence[int]) -> None:
        self._units.setdefault(pool, {}).setdefault(owner, []).extend(units)

    def _drop(self, pool: str, owner: Owner, units: Sequence[int]) -> None:
        dropped = set(units)
        held = self._units.get(pool, {}).get(owner, [])
        held[:] = [unit for unit in held if unit not in dropped]
