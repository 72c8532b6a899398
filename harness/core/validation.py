"""Validation errors of msgspec as one line of text."""

import json
from itertools import islice
from typing import Any

import msgspec

MAX_SHOWN = 40  # characters of an invalid value in a message
NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # raised for a JSON text from outside


def validation_text(raw: dict[str, Any], error: msgspec.ValidationError) -> str:
    """The error with the invalid value, such as "count is 9, want int <= 8"."""
    message, _, place = str(error).replace("`", "").partition(" - at ")
    place = place.replace("$.", "").removeprefix("$")
    name = (f"{place}." if place else "") + message.rpartition(" field ")[2]
    if message.startswith("Object contains unknown field "):
        return f"unknown argument {name}"
    if message.startswith("Object missing required field "):
        return f"{name} is missing"
    if not message.startswith("Expected "):
        return message
    want = message.removeprefix("Expected ").split(", got ")[0]
    try:
        return f"{place} is {shortened(_value_at(raw, place))}, want {want}"
    except (LookupError, ValueError):  # of a key, or below a key that the place does not name
        return f"{place}: want {want}"


def _value_at(raw: Any, place: str) -> Any:
    """The value at a place such as `recipe.path[1]`."""
    for name in place.replace("]", "").replace("[", ".").split("."):
        raw = raw[int(name)] if isinstance(raw, list | tuple) else raw[name]
    return raw


def shortened(value: object) -> str:
    """The value as JSON, cut to MAX_SHOWN characters; the rest is not encoded."""
    text = "".join(islice(json.JSONEncoder(default=str).iterencode(value), MAX_SHOWN + 1))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
