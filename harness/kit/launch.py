"""Launch lines of servers, as in "vllm serve MODEL --block-size 256", and how settings follow from their options.

A table has, by setting, a function of the line, such as `number("block-size", 16)`.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import parsed

ValueT = TypeVar("ValueT")
Read = Callable[["Line"], Any]
Table = Mapping[str, Read]
VARIABLE, OPTION = re.compile(r"(\w+)=(.*)", re.DOTALL), re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
OF_SHELLS = re.compile(r"\d?[&|;<>].*")
SUFFIXES = {"k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20}  # of numbers, as in 128k
SWITCH = {"true": True, "1": True, "false": False, "0": False}
LEAST_TOKENS, LEAST_PAGES, CHUNKS = 1024, 32, 4  # that the largest pool of a run holds; chunks or windows


class Line:
    """The options of a launch line for a release.  What is read of them is driven; `not_driven` are the others.

    Lengths in tokens are divided by the `scale`, so that a pool of `pool_len` tokens holds some; but a page, of which
    `page_len` is the length, stays as it is, and no length becomes shorter than a page.
    """

    def __init__(self, text: str, release: str = "") -> None:
        try:
            words = shlex.split(text.replace("\\\n", " "))
        except ValueError as error:
            raise UsageError(f"--launch: {text!r} cannot be split into words: {error}") from error
        if shells := list(filter(OF_SHELLS.fullmatch, words)):
            raise UsageError(f"--launch: {shells[0]!r} is of a shell; leave it out")
        self._release, self._options = release, dict[str, str | None]()
        self._read, self._further = set[str](), list[str]()
        while words and (match := VARIABLE.fullmatch(words[0])):
            self._options[match[1]], words = match[2], words[1:]
        is_module = len(words) > 2 and Path(words[0]).name.startswith("python") and words[1] == "-m"
        self.program = words[2] if is_module else " ".join([Path(word).name for word in words[:2]])
        self._take(words[3 if is_module else 2 :])
        self.page_len, self.pool_len, self.scale = 1, LEAST_TOKENS, 1

    def _take(self, words: Sequence[str]) -> None:
        name = "model"  # of the words before the first option
        for word in words:
            if match := OPTION.fullmatch(word):
                name = match[1].replace("_", "-")
                self._options[name] = match[2]
            else:
                before = self._options.get(name)
                self._options[name] = word if before is None else f"{before} {word}"

    @property
    def not_driven(self) -> list[str]:
        """The options that nothing has read, as they stand in the line, and what of others is left out."""
        left = {name: value for name, value in self._options.items() if name not in self._read}
        texts = [f"{name}={value}" if name.isupper() else f"--{name} {value or ''}" for name, value in left.items()]
        return [text.strip() for text in texts] + self._further

    def leave_out(self, what: str) -> None:
        """Note what of an option is not driven."""
        self._further += [what] if what not in self._further else []

    def is_since(self, release: str) -> bool:
        """Whether the release is this one or a later one."""
        return parsed(self._release) >= parsed(release)

    def text(self, name: str) -> str | None:
        self._read.add(name)
        return self._options.get(name)

    def has(self, name: str, *, usual: bool = False) -> bool:
        """Whether a switch is on, `usual` without it."""
        if f"no-{name}" in self._options:
            return not self.has(f"no-{name}")
        return self.checked(name, (self.text(name) or "true").lower(), SWITCH) if name in self._options else usual

    def number(self, name: str, usual: Any) -> Any:
        """A number of the kind of the usual one."""
        if (text := self.text(name)) is None:
            return usual
        digits, factor = (text[:-1], SUFFIXES[text[-1]]) if text[-1:] in SUFFIXES else (text, 1)
        try:
            return float(digits) * factor if isinstance(usual, float) else int(digits) * factor
        except ValueError:
            raise self.error(name, f"a {'number' if isinstance(usual, float) else 'whole number'}") from None

    def mapping(self, name: str) -> dict[str, Any]:
        """The object in JSON of an option, also of options such as --speculative-config.method; {} without them."""
        inside = [one for one in self._options if one.startswith(f"{name}.")]
        found = {one.removeprefix(f"{name}.").replace("-", "_"): _decoded(self.text(one) or "") for one in inside}
        if (text := self.text(name)) is not None:
            try:
                found |= msgspec.json.decode(text, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise self.error(name, "an object in JSON") from error
        return found

    def count_in(self, name: str, found: Mapping[str, Any], key: str, usual: int) -> int:
        """The whole number of this key in the object of an option."""
        value = found.get(key, usual)
        if not isinstance(value, int) or value < 1:
            raise self.error(name, f"a whole number for {key}")
        return value

    def checked(self, name: str, value: str, meanings: Mapping[str, ValueT]) -> ValueT:
        """What this value of an option means; raises UsageError if it means nothing."""
        if value not in meanings:
            raise self.error(name, " or ".join(meanings))
        return meanings[value]

    def error(self, name: str, want: str) -> UsageError:
        return UsageError(f"--launch: --{name} is {self._options.get(name)!r}; want {want}")

    def fit(self, page_len: int, *lengths: int) -> None:
        """Choose the scale for these lengths of chunks and windows."""
        if page_len < 1:
            raise UsageError(f"--launch: a page or block has {page_len} tokens; want at least 1")
        self.page_len, self.pool_len = page_len, max(LEAST_TOKENS, LEAST_PAGES * page_len)
        while max(lengths) * CHUNKS > self.pool_len * self.scale:
            self.scale *= 2

    def scaled(self, length: int) -> int:
        return max(length // self.scale, min(length, self.page_len))

    def context(self, name: str) -> int:
        """The context that a run can hold: two requests as long as it fill the largest pool."""
        return min(self.scaled(self.number(name, self.pool_len * self.scale)), self.pool_len // 2)

    def of_model(self, models: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """The entry of the model, by a pattern in its name; {} for another one."""
        name = " ".join([self.text(option) or "" for option in ("model", "model-path")]).lower()
        return next((one for pattern, one in models.items() if re.search(pattern, name)), {})


def _decoded(text: str) -> Any:
    """The value of an option such as --speculative-config.method: in JSON, or a text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


# --- the functions of a table


def table(**settings: Read) -> Table:
    return settings


def number(name: str, usual: Any) -> Read:
    return lambda line: line.number(name, usual)


def scaled(name: str, usual: int) -> Read:
    """A length in tokens."""
    return lambda line: line.scaled(line.number(name, usual))


def switch(name: str, *, usual: bool = False) -> Read:
    return lambda line: line.has(name, usual=usual)


def text(name: str, usual: str) -> Read:
    return lambda line: line.text(name) or usual
