"""The places that can hold the KV of a request."""

from typing import NamedTuple

from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.host.tier import HostTier
from swarden.engine_under_test.pools.memory import KVMemory


class Storage(NamedTuple):
    """The pools, the prefix cache over them, and the host tier; `host` is None for an engine without one."""

    memory: KVMemory
    cache: PrefixCache
    host: HostTier | None = None
