"""The evidence of a violation."""

from collections.abc import Sequence
from typing import NamedTuple

from swarden.harness.core.driver import Moment
from swarden.invariants.view import PoolView


class Evidence(NamedTuple):
    """The context of a violation: the history before it and the state of the pools."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]
