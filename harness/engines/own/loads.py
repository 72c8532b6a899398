"""Load profiles: the output lengths, priorities and settings of a run."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.engines.own.configurations import on_host
from swarden.harness.search.scenes import TIMEOUT_MS

Traffic = tuple[str, ...]  # kinds of ops, each as often as its weight


class LoadProfile(NamedTuple):
    """The output lengths and priorities of the requests of a run, and the settings that it needs.

    The kinds of ops in `also` are added to those of the traffic.  The pool sizes are multiplied by `times`.  Without
    `settings` the engine would rarely reach the states that the load is for.  With `needs_host` a configuration without
    a host tier gets one of twice the device pools.
    """

    outputs: tuple[int, ...]
    priorities: tuple[int, ...] = (0, 0, 0, 1, 2, -1)
    also: Traffic = ()
    times: int = 1
    settings: Mapping[str, Any] = MappingProxyType({})
    needs_host: bool = False

    def on(self, config: EngineConfig) -> EngineConfig:
        """The configuration with the settings and pool sizes of this load."""
        if not self.settings.get("prefix_sharing", True):
            config = replace(config, host_full_pages=0, host_swa_pages=0, host_state_pages=0)
        config = replace(
            config,
            full_pages=config.full_pages * self.times,
            swa_pages=config.swa_pages * self.times,
            state_pages=config.state_pages * self.times,
            **self.settings,
        )
        return on_host(config, 2) if self.needs_host and not config.host_pools else config


RIVALS = LoadProfile(
    (16, 8, 4, 24),
    priorities=(0, 1, 2, 3),
    also=("contest",) * 6,
    times=2,
    settings=MappingProxyType(
        {"preemption_threshold": 0, "chunk_len": None, "max_running_requests": 4, "request_timeout_ms": None}
    ),
)
OVERBOOKED = LoadProfile(
    (16, 24, 8, 4),
    also=("crowd",) * 3,
    settings=MappingProxyType(
        {
            "new_token_ratio": 0.01,
            "new_token_ratio_floor": 0.01,
            "max_running_requests": 4,
            "prefix_sharing": True,
            "request_timeout_ms": None,
        }
    ),
)
IMPATIENT = LoadProfile(
    (24, 16, 8, 40),
    also=("delay",) * 4,
    settings=MappingProxyType({"request_timeout_ms": TIMEOUT_MS, "max_running_requests": 2}),
)
RETURNING = LoadProfile(
    (16, 2, 24, 1),
    also=("return",) * 8,
    settings=MappingProxyType({**OVERBOOKED.settings, "max_running_requests": 8}),
    needs_host=True,
)
RETURNING_UNCHUNKED = RETURNING._replace(settings=MappingProxyType({**RETURNING.settings, "chunk_len": None}))
OUTLASTING = RETURNING._replace(
    also=("outlast",) * 12,
    settings=MappingProxyType({**RETURNING.settings, "chunk_len": 16, "host_policy": "write_back", "overlap": True}),
)
TALKING = LoadProfile((16, 8, 24, 4), also=("talk",) * 8 + ("crowd",) * 2, settings=OVERBOOKED.settings)
REWINDING = LoadProfile(
    (16, 12, 20, 8),
    also=("rewind",) * 10,
    times=2,
    settings=MappingProxyType({"prefix_sharing": False, "request_timeout_ms": None, "idle_session_share": 1.0}),
)
# Mostly short outputs: short runs leave time for more runs, and reach most of the states of long runs.
LOADS = (
    LoadProfile((1, 2, 4, 0, 9)),
    RIVALS,
    OVERBOOKED,
    RETURNING,
    RETURNING_UNCHUNKED,  # twice, because its bugs need many requests at once
    TALKING,
    REWINDING,
    RETURNING_UNCHUNKED,
    IMPATIENT,
    OUTLASTING,
    REWINDING,
)
