"""What msgspec says of a value that does not fit, in the words of an error line."""

import json
from typing import Any

import msgspec

MAX_SHOWN = 40  # characters of a wrong value


def told(raw: dict[str, Any], error: msgspec.ValidationError) -> str:
    """What msgspec said of a value, with the value: "count is 9, want int <= 8"."""
    said, _, place = str(error).replace("`", "").partition(" - at $.")
    name = f"{place}." * bool(place) + said.rpartition(" field ")[2]
    if said.startswith("Object contains unknown field "):
        return f"unknown argument {name}"
    if said.startswith("Object missing required field "):
        return f"{name} is missing"
    if not said.startswith("Expected "):
        return said
    want = said.removeprefix("Expected ").split(", got ")[0]
    return f"{place} is {shown(_value_at(raw, place))}, want {want}"


def _value_at(raw: Any, place: str) -> Any:
    """What stands in a place such as `recipe.path[1]`."""
    for name in place.replace("]", "").replace("[", ".").split("."):
        raw = raw[int(name)] if isinstance(raw, list) else raw[name]
    return raw


def shown(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
