"""Owners outside of the engine that hold units of its pools."""

from collections.abc import Sequence

import swarden.invariants.events as seen
from swarden.harness.strict.live import Handlers
from swarden.invariants import view

OWN_KINDS = frozenset({seen.REQUEST_KIND, seen.SESSION_KIND, seen.HANDOVER_KIND, seen.TREE_KIND, *seen.COPY_JOB_KINDS})


class Outside:
    """The units of owners that are no part of the engine: no request, session, transfer, tree or copy job."""

    def __init__(self, pools: Sequence[str]) -> None:
        self.counts = dict.fromkeys(pools, 0)
        self._units: dict[str, dict[seen.Owner, list[int]]] = {}

    @property
    def handlers(self) -> Handlers:
        return {seen.Taken: self._taken, seen.Given: self._given, seen.Freed: self._freed}

    def held(self) -> dict[str, list[view.Holding]]:
        """By pool, the holding of each outside owner."""
        return {pool: [_holding(*one) for one in self._units.get(pool, {}).items() if one[1]] for pool in self.counts}

    def _taken(self, event: seen.Taken) -> None:
        if event.owner.kind not in OWN_KINDS:
            self._add(event.pool, event.owner, event.units)

    def _given(self, event: seen.Given) -> None:
        if event.from_owner.kind not in OWN_KINDS:
            self._drop(event.pool, event.from_owner, event.units)
        if event.to_owner.kind not in OWN_KINDS:
            self._add(event.pool, event.to_owner, event.units)

    def _freed(self, event: seen.Freed) -> None:
        if event.owner.kind not in OWN_KINDS:
            self._drop(event.pool, event.owner, event.units)

    def _add(self, pool: str, owner: seen.Owner, units: Sequence[int]) -> None:
        self.counts[pool] = self.counts.get(pool, 0) + len(units)
        self._units.setdefault(pool, {}).setdefault(owner, []).extend(units)

    def _drop(self, pool: str, owner: seen.Owner, units: Sequence[int]) -> None:
        dropped = set(units)
        owned = self._units.get(pool, {}).get(owner, [])
        self.counts[pool] = self.counts.get(pool, 0) - len(owned)
        owned[:] = [unit for unit in owned if unit not in dropped]
        self.counts[pool] += len(owned)


def _holding(owner: seen.Owner, units: Sequence[int]) -> view.Holding:
    return view.Holding(owner, tuple(units), cached=False)
