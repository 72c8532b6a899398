"""The settings of a target: whether its encode and decode keep them, and what the shrinker could set them to."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.target import Target, decode_all, simplified
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.search.shrink.simpler import Argument, is_number, nearer, simpler_values

MOST_CHANGED = 3  # settings of a random shrunken configuration
TRIES = 50  # for each shrunken configuration that is accepted
WRONG_TYPES = ("text", None, [1])
UNKNOWN = "no_such_setting"
Config = dict[str, Any]


def changed_settings(target: Target, config: Config) -> str:
    """The settings that differ from their defaults, as text."""
    changed = {name: value for name, value in config.items() if value != target.defaults.get(name)}
    return msgspec.json.encode(changed).decode()


def setting_problems(target: Target, config: Config) -> Iterator[str]:
    """A line with a remedy for each thing that is wrong with the JSON form of a drawn configuration."""
    try:
        read = msgspec.json.decode(msgspec.json.encode(config))
    except TypeError as error:
        yield f"encode gives no JSON: {error}; give numbers, texts, lists and objects"
        return
    try:
        again = _encoded_again(target, read)
    except InvalidConfig as error:
        yield f"decode refuses what encode gives: {error}; let decode(encode(config)) be the same configuration"
        return
    for name in sorted({*config, *again}):
        if config.get(name) != again.get(name):
            what = f"{name} is {config.get(name)!r} before and {again.get(name)!r} after encode, JSON and decode"
            yield f"settings are lost: {what}; let decode(encode(config)) be the same configuration"
    for name in sorted(config.keys() - target.defaults.keys()):
        yield f"setting {name}: encode has it, and defaults has not; add it there, or the shrinker never simplifies it"
    if not _is_refused(target, {**config, UNKNOWN: 1}):
        yield "an unknown setting is accepted: let decode raise InvalidConfig for names that it does not know"
    for name, value in product(config, WRONG_TYPES):
        try:
            _is_refused(target, {**config, name: value})
        except TargetFault as fault:
            yield f"decode fails on values of another type: {name} {value!r}: {fault}, let it raise InvalidConfig"


def shrunken_configs(
    target: Target, headers: Sequence[Header], source: random.Random, on_fault: Callable[[TargetFault], None]
) -> Iterator[Header]:
    """An endless series of headers with simpler settings that decode accepts; each coupled group and setting first.

    A fault of decode is passed on.
    """
    for configs, header in _simpler(target, headers, source):
        try:
            with blamed_on(target.name, "decode"):
                decode_all(target, configs)
        except InvalidConfig:
            continue
        except TargetFault as fault:
            on_fault(fault)
            continue
        yield msgspec.structs.replace(header, configs=configs)


def _simpler(target: Target, headers: Sequence[Header], source: random.Random) -> Iterator[tuple[list[Config], Header]]:
    defaults = simplified(target)
    groups = [*target.coupled, *((name,) for name in defaults)]
    changes: list[Config] = [{name: defaults[name] for name in group if name in defaults} for group in groups]
    changes += [{name: value} for value in (0, 1) for name, old in defaults.items() if is_number(old)]
    for index, change in enumerate(changes if headers else ()):
        header = headers[index % len(headers)]
        yield [{**config, **change} for config in header.configs], header
    for _ in range(TRIES * len(headers) if defaults else 0):
        header = source.choice(headers)
        names = source.sample(sorted(defaults), min(len(defaults), source.randint(1, MOST_CHANGED)))
        yield [{**config, **_simpler_settings(target, config, names, source)} for config in header.configs], header


def _simpler_settings(target: Target, config: Config, names: Sequence[str], source: random.Random) -> Config:
    changes = {}
    for name in names:
        default = target.defaults[name]
        value = config.get(name, default)
        lower = nearer(value, 0) if is_number(value) else ()
        changes[name] = source.choice([default, *simpler_values(Argument(name, value, default)), *lower])
    return changes


def _encoded_again(target: Target, mapping: Config) -> Config:
    with blamed_on(target.name, "decode"):
        config = target.decode(mapping)
    with blamed_on(target.name, "encode"):
        return target.encode(config)


def _is_refused(target: Target, mapping: Config) -> bool:
    try:
        with blamed_on(target.name, "decode"):
            target.decode(mapping)
    except InvalidConfig:
        return True
    return False
