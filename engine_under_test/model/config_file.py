"""What a config.json says, checked as it is read."""

import math
from collections.abc import Mapping
from typing import Any

from engine_under_test.errors import CheckpointError


class ConfigFile:
    """One JSON object of a configuration; whatever is wrong with a key is a CheckpointError that names file and key."""

    def __init__(self, values: Mapping[str, Any], source: str, *, within: str = "") -> None:
        """`source` names the file, `within` the keys that lead to this object, each followed by a dot."""
        self._values = values
        self._source = source
        self._within = within

    def __contains__(self, key: str) -> bool:
        """A key of null is as good as none."""
        return self._values.get(key) is not None

    def has(self, key: str) -> bool:
        """Whether it is written, be it as null."""
        return key in self._values

    def refusal(self, key: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._source}: {self._within}{key} {problem}")

    def raw(self, key: str) -> Any:
        if key not in self:
            raise self.refusal(key, "is missing; write it as transformers' save_pretrained does")
        return self._values[key]

    def count(self, key: str, *, least: int = 1) -> int:
        """An integer of at least `least`."""
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.refusal(key, f"is {value!r}; want an integer of at least {least}")
        return value

    def number(self, key: str) -> float:
        """A positive number."""
        value = self.raw(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refusal(key, f"is {value!r}; want a positive number")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.raw(key) if key in self else default
        if not isinstance(value, bool):
            raise self.refusal(key, f"is {value!r}; want true or false")
        return value

    def choice(self, key: str, choices: Mapping[str, object]) -> str:
        value = self.raw(key)
        if not isinstance(value, str) or value not in choices:
            raise self.refusal(key, f"is {value!r}; what can be run is {', '.join(choices)}")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id, a list of them, or none."""
        value = self.raw(key) if key in self else []
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
            raise self.refusal(key, f"is {value!r}; want a token id or a list of them")
        return tuple(ids)

    def inner(self, key: str) -> "ConfigFile":
        value = self.raw(key)
        if not isinstance(value, dict):
            raise self.refusal(key, f"is {value!r}; want an object")
        return ConfigFile(value, self._source, within=f"{self._within}{key}.")
