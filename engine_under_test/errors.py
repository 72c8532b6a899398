"""The errors of the engine.

An operating error is handled within the engine, or its message says what the caller must change.  An AccountingError
always reaches the caller: the accounting is wrong.
"""


class EngineError(Exception):
    """Base of the operating errors."""


class ConfigError(EngineError, ValueError):
    """The configuration is invalid; the message names the field, the value and the remedy."""


class CheckpointError(EngineError, ValueError):
    """The checkpoint cannot be loaded; the message names the file, the key or the tensor, and the remedy."""


class PoolExhausted(EngineError):
    """Too few units are free, or the free units have no memory behind them; nothing was taken."""

    def __init__(self, pool: str, *, want: int, free: int) -> None:
        super().__init__(f"{pool}: want {want}, {free} free" + (", no memory behind them" if want <= free else ""))
        self.pool = pool
        self.want = want
        self.free = free


class AccountingError(AssertionError):
    """The accounting is wrong: for example a double free, or a lock that is released twice."""
