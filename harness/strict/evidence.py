"""The evidence of a violation."""

from collections.abc import Sequence
from typing import NamedTuple

from harness.core.driver import Moment
from invariants.view import PoolView


class Evidence(NamedTuple):
    """The context of a violation: the history before it and the state of the pools."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]
