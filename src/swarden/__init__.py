"""swarden finds KV-memory bugs in serving engines.

Public are `swarden.kit`, with the names for targets, and here `fuzz` and `replay`, for tests and notebooks.  They are
imported when they are first used, because a server with the strict check imports this package, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarden.harness.search.testing import fuzz as fuzz
    from swarden.harness.search.testing import replay as replay

__all__ = ["fuzz", "replay"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("swarden.harness.search.testing"), name)
