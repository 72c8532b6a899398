"""Settings that are fixed in all runs of a campaign, in JSON form by their names, and draws that they do not fit."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from swarden.harness.core.errors import UsageError, cut
from swarden.harness.core.target import Target, decode_all
from swarden.harness.core.target_fault import blamed_on
from swarden.harness.core.validation import shortened

Settings = Mapping[str, Any]
NUMBER = re.compile(r"\d+")


def with_settings(target: Target, configs: Sequence[Any], settings: Settings) -> Sequence[Any]:
    """The configurations with these settings; raises InvalidConfig if the engine refuses them."""
    if not settings:
        return configs
    with blamed_on(target.name, "decode"):
        encoded = [target.encode(config) for config in configs]
        return decode_all(target, [{**config, **fixed_for(target, config, settings)} for config in encoded])


def have_settings(target: Target, configs: Sequence[Settings], settings: Settings) -> bool:
    """Whether all these configurations, in JSON form, have these settings. A missing one has its default."""
    whole = [{**target.defaults, **config} for config in configs]
    return all(fixed_for(target, config, settings).items() <= config.items() for config in whole)


def fixed_for(target: Target, config: Settings, settings: Settings) -> Settings:
    """The settings that are fixed for an engine: all, or those of both sides of a pair if they have another role."""
    if all(settings.get(name, config[name]) == config[name] for name in target.kept if name in config):
        return settings
    return {name: value for name, value in settings.items() if name not in target.of_one_side}


def most_frequent(refused: Counter[str]) -> str:
    """The most frequent reason for which draws were refused; reasons that differ in numbers only are one."""
    kinds = Counter[str]()
    for reason, times in refused.items():
        kinds[NUMBER.sub("", reason)] += times
    return max(refused, key=lambda reason: kinds[NUMBER.sub("", reason)], default="")


def refusal(refused: Counter[str], settings: Settings, model: str, launch: str = "") -> UsageError:
    """The error that the engine refuses each draw with these settings, or with this model, or with this launch line."""
    fixed = launch or ", ".join(f"{name}={shortened(value)}" for name, value in settings.items()) or model
    option = "--launch" if launch else "--set" if settings else "--model"
    where = f"{option}: the engine refuses each of {refused.total()} draws with"
    remedy = "choose another value, set further ones that it needs, or name another machine"
    return UsageError(f"{where} {cut(fixed, 150)}, most often: {most_frequent(refused)}; {remedy}")


def assignments(settings: Settings) -> list[str]:
    """The values of --set, as in "overlap=true"."""
    return [f"{name}={msgspec.json.encode(value).decode()}" for name, value in settings.items()]
