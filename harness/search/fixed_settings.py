"""Settings that are fixed in all runs of a campaign, in JSON form by their names."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.target import ENGINE, Target
from swarden.harness.core.target_fault import blamed_on

Settings = Mapping[str, Any]


def with_settings(target: Target, configs: Sequence[Any], settings: Settings) -> Sequence[Any]:
    """The configurations with these settings; raises InvalidConfig if the engine refuses them."""
    if not settings:
        return configs
    with blamed_on(target.name, "decode"):
        return target.decode_all([{**target.encode(one), **settings} for one in configs])


def have_settings(target: Target, configs: Sequence[Settings], settings: Settings) -> bool:
    """Whether all these configurations, in JSON form, have these settings. A missing one has its default."""
    return all(settings.items() <= {**target.defaults, **config}.items() for config in configs)


def refusal(target: Target, settings: Settings) -> UsageError:
    """The error that no drawn configuration can have these settings, with the reason for the default configuration."""
    reason = "choose other values, or set further ones that they need"
    try:
        target.systems(ENGINE, [target.decode({**target.defaults, **settings})], "")
    except InvalidConfig as error:
        reason = str(error)
    return UsageError(f"--set: the engine refuses each drawn configuration with {dict(settings)}: {reason}")


def assignments(settings: Settings) -> list[str]:
    """The values of --set, as in "overlap=true"."""
    return [f"{name}={msgspec.json.encode(value).decode()}" for name, value in settings.items()]
