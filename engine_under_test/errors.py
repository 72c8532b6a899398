"""What can go wrong in the engine, by name.

Operating errors have a handler somewhere.  An AccountingError has none: the books are wrong,
and whoever drives the engine must hear of it.
"""


class EngineError(Exception):
    """Base of the operating errors."""


class ConfigError(EngineError, ValueError):
    """A configuration that no engine can be built from; names the field, the value and the remedy."""


class CheckpointError(EngineError, ValueError):
    """A checkpoint that cannot be loaded; names the file, the key or the tensor, and the remedy."""


class PoolExhausted(EngineError):
    """A take that asked for more units than are free, or have memory behind them; nothing was taken."""

    def __init__(self, pool: str, *, want: int, free: int) -> None:
        super().__init__(f"{pool}: want {want}, {free} free" + (", no memory behind them" if want <= free else ""))
        self.pool = pool
        self.want = want
        self.free = free


class AccountingError(AssertionError):
    """The books are wrong: a unit was freed that is not there to be freed, a lock released twice."""
