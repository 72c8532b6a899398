"""Valid documents and files with a few hostile changes."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

DEEP = "deep"  # stands for nested lists
NUMBERS = (0, -1, 1, 3, 2**20, 2**26, 2**31, 2**53, 2**63, 10**12, 10**30, 10**400, 0.5, -0.0, 5e-324, 1e-17, 1e308)
TEXTS = (
    "",
    "\x1b]0;x\x07",
    "\0",
    "\ud800",
    "\ufffe",
    "../x",
    "/dev/zero",
    "x" * 5000,
    "model.safetensors",
    "yarn",
    "é\u202e",
)
HOSTILE: tuple[Any, ...] = (
    *NUMBERS,
    *TEXTS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [{}],
    [0] * 5000,
    {"": 0},
    {"x" * 300: {}},
    DEEP,
)
WORDS = (b"", b"[", b"]", b"{", b'"', b",", b"\n", b"\x00", b"\xff", b"9" * 5000, b"[" * 5000, b" " * 5000, b"1e999")


@st.composite
def mutated(draw: DrawFn, document: Any) -> Any:
    """A JSON document of which up to three parts are hostile, another part of it, absent or there twice."""
    document = deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        container, key = _place(draw, document)
        if container is None:
            return deepcopy(draw(st.sampled_from(HOSTILE)))
        change = draw(st.sampled_from(("hostile", "hostile", "hostile", "other", "absent", "twice")))
        if change == "absent":
            del container[key]
        elif change == "twice" and isinstance(container, list):
            container.insert(key, deepcopy(container[key]))
        elif change == "other":
            other, place = _place(draw, document)
            container[key] = deepcopy(other[place]) if other is not None else None
        else:
            container[key] = deepcopy(draw(st.sampled_from(_instead_of(container[key]))))
    return document


def _instead_of(value: Any) -> tuple[Any, ...]:
    """Hostile values, mostly of the same kind as a value."""
    match value:
        case bool() | None:
            return HOSTILE
        case int() | float():
            return NUMBERS * 8 + HOSTILE
        case str():
            return TEXTS * 8 + HOSTILE
    return HOSTILE


def _place(draw: DrawFn, document: Any) -> tuple[Any, Any]:
    """A container in the document, and one of its keys; (None, None) if the document has no part."""
    found, key, container = (None, None, document)
    while isinstance(container, dict | list) and container and (found is None or draw(st.booleans())):
        key = draw(
            st.sampled_from(sorted(container) if isinstance(container, dict) else range(min(20, len(container))))
        )
        found, container = container, container[key]
    return found, key


@st.composite
def damaged(draw: DrawFn, content: bytes) -> bytes:
    """The content, or in one of four cases the content with a part cut out and a word in its place."""
    if draw(st.integers(0, 3)):
        return content
    begin, length = draw(st.integers(0, len(content))), draw(st.sampled_from((0, 1, 7, 10**9)))
    return content[:begin] + draw(st.sampled_from(WORDS)) + content[begin + length :]


def text_of(document: Any) -> bytes:
    return json.dumps(document).replace(json.dumps(DEEP), "[" * 900 + "]" * 900).encode()


def toml_of(document: Any) -> bytes:
    """The document in TOML, its values inline; None is a date, which JSON has not."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return f"{{{', '.join(f'{json.dumps(key)} = {inline(item)}' for key, item in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(inline, value))}]"
        return {DEEP: "[" * 5000, None: "2026-11-28"}.get(value) or json.dumps(value)

    parts = document.items() if isinstance(document, dict) else ()
    return "".join(f"{json.dumps(key)} = {inline(value)}\n" for key, value in parts).encode()


def files_of(documents: SearchStrategy[Any], text: Callable[[Any], bytes] = text_of) -> SearchStrategy[bytes]:
    """Mutated documents as files, some of them damaged."""
    return documents.map(text).flatmap(damaged)
