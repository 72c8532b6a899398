"""Settings that are fixed in all runs of a campaign, in JSON form by their names, and draws that they do not fit."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from swarden.harness.core.errors import UsageError, cut
from swarden.harness.core.target import Target
from swarden.harness.core.target_fault import blamed_on
from swarden.harness.core.validation import shortened

Settings = Mapping[str, Any]
NUMBER = re.compile(r"\d+")


class EachRefused(UsageError):
    """The engine refuses each configuration that is drawn with the settings or the model of a campaign."""


@dataclass
class Refusals:
    """The number of refused draws, by reason; reasons that differ in numbers only are one, with its first text."""

    draws: Counter[str] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)

    def note(self, reason: str) -> None:
        name = NUMBER.sub("", reason)
        self.draws[name] += 1
        self.texts.setdefault(name, reason)

    def add(self, other: "Refusals") -> None:
        self.draws.update(other.draws)
        self.texts = other.texts | self.texts

    def __str__(self) -> str:
        """The most frequent reason; "" if no draw was refused."""
        return self.texts[self.draws.most_common(1)[0][0]] if self.draws else ""

    def figures(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {"draws": self.draws.total(), "most_frequent": str(self)}


def with_settings(target: Target, configs: Sequence[Any], settings: Settings) -> Sequence[Any]:
    """The configurations with these settings; raises InvalidConfig if the engine refuses them."""
    if not settings:
        return configs
    with blamed_on(target.name, "decode"):
        return target.decode_all([{**target.encode(one), **settings} for one in configs])


def have_settings(target: Target, configs: Sequence[Settings], settings: Settings) -> bool:
    """Whether all these configurations, in JSON form, have these settings. A missing one has its default."""
    return all(settings.items() <= {**target.defaults, **config}.items() for config in configs)


def refusal(refusals: Refusals, settings: Settings, model: str) -> EachRefused:
    """The error that all draws were refused."""
    fixed = ", ".join(f"{name}={shortened(value)}" for name, value in settings.items()) or model
    where = f"{'--set' if settings else '--model'}: the engine refuses each of {refusals.draws.total()} draws with"
    remedy = "choose another value, set further ones that it needs, or name another machine"
    return EachRefused(f"{where} {cut(fixed, 150)}, most often: {refusals}; {remedy}")


def assignments(settings: Settings) -> list[str]:
    """The values of --set, as in "overlap=true"."""
    return [f"{name}={msgspec.json.encode(value).decode()}" for name, value in settings.items()]
