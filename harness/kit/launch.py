"""Launch lines of servers, as in "vllm serve MODEL --block-size 256", and how settings follow from their options."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import parsed

Table = Mapping[str, tuple[Any, ...]]  # by setting, a method of Line and its arguments, or a function of the line
VARIABLE, OPTION = re.compile(r"(\w++)=(.*)", re.DOTALL), re.compile(r"--?([A-Za-z][\w.-]*+)(?:=(.*))?", re.DOTALL)
SUFFIXES = {"k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20}  # of numbers, as in 128k
SWITCH = {"true": True, "1": True, "false": False, "0": False}
LEAST_TOKENS, LEAST_PAGES, CHUNKS = 1024, 32, 4  # chunks or windows that the largest pool of a run holds


def table(**settings: Any) -> Table:
    """A table in which a function of the line stands alone, without arguments."""
    return {name: row if isinstance(row, tuple) else (row,) for name, row in settings.items()}


class Line:
    """The options of a launch line for a release; the options that no target reads are in `not_driven`.

    Lengths in tokens are divided by `scale`, so that some requests fit into a pool of `pool_len` tokens.  `page_len`,
    the length of a page, is not divided, and no length becomes shorter than a page.  `program` is the command that the
    line starts, as in "vllm serve", or its module.
    """

    def __init__(self, text: str, release: str = "") -> None:
        try:
            words = shlex.split(text.replace("\\\n", " "))
        except ValueError as error:
            raise UsageError(f"--launch: {text!r} cannot be split into words: {error}") from error
        self._release, self._options = release, dict[str, str | None]()
        self._read, self._further = set[str](), list[str]()
        while words and (match := VARIABLE.fullmatch(words[0])):
            self._options[match[1]], words = match[2], words[1:]
        is_module = len(words) > 2 and Path(words[0]).name.startswith("python") and words[1] == "-m"
        self.program, name = words[2] if is_module else " ".join([Path(word).name for word in words[:2]]), "model"
        for word in words[3 if is_module else 2 :]:  # the model, if it comes before the first option
            if match := OPTION.fullmatch(word):
                name = match[1].replace("_", "-")
                self._options[name] = match[2]
            else:
                self._options[name] = f"{self._options.get(name) or ''} {word}".strip()
        self.page_len, self.pool_len, self.scale = 1, LEAST_TOKENS, 1

    @property
    def not_driven(self) -> list[str]:
        """The options that nothing has read, as they stand in the line, and what of others is left out."""
        unread = {name: value for name, value in self._options.items() if name not in self._read}
        texts = [f"{name}={value}" if name.isupper() else f"--{name} {value or ''}" for name, value in unread.items()]
        return [text.strip() for text in texts] + self._further

    def leave_out(self, what: str) -> None:
        """Note what of an option is not driven."""
        self._further += [what] if what not in self._further else []

    def is_since(self, release: str) -> bool:
        """Whether the release is this one or a later one."""
        return parsed(self._release) >= parsed(release)

    def word(self, name: str, usual: str = "") -> str:
        self._read.add(name)
        return self._options.get(name) or usual

    def has(self, name: str, *, usual: bool = False) -> bool:
        """Whether a switch is on, `usual` without it."""
        if f"no-{name}" in self._options:
            return not self.has(f"no-{name}")
        return SWITCH[self.checked(name, SWITCH, "true")] if name in self._options else usual

    def checked(self, name: str, choices: Mapping[str, Any], usual: str) -> str:
        """The value in small letters, which is one of the choices; raises UsageError for another one."""
        if (word := self.word(name, usual).lower()) not in choices:
            raise self.error(name, " or ".join(choices))
        return word

    def number(self, name: str, usual: Any) -> Any:
        """A number of the kind of the usual one."""
        if not (word := self.word(name)):
            return usual
        digits, factor = (word[:-1], SUFFIXES[word[-1]]) if word[-1] in SUFFIXES else (word, 1)
        try:
            return float(digits) * factor if isinstance(usual, float) else int(digits) * factor
        except ValueError:
            raise self.error(name, f"a {'number' if isinstance(usual, float) else 'whole number'}") from None

    def length(self, name: str, usual: int) -> int:
        """A length in tokens, scaled."""
        return self.scaled(self.number(name, usual))

    def mapping(self, name: str) -> dict[str, Any]:
        """The object in JSON of an option; {} without it."""
        try:
            return msgspec.json.decode(self.word(name, "{}"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise self.error(name, "an object in JSON") from error

    def error(self, name: str, want: str) -> UsageError:
        return UsageError(f"--launch: --{name} is {self._options.get(name)!r}; want {want}")

    def fit(self, page_len: int, *lengths: int) -> None:
        """Choose the scale for these lengths of chunks and windows."""
        if page_len < 1:
            raise UsageError(f"--launch: a page or block has {page_len} tokens; want at least 1")
        self.page_len, self.pool_len = page_len, max(LEAST_TOKENS, LEAST_PAGES * page_len)
        while max(lengths) * CHUNKS > self.pool_len * self.scale:
            self.scale *= 2
        if self.scale > 1:
            self.leave_out(f"lengths in tokens but for pages, which are divided by {self.scale}")

    def scaled(self, length: int) -> int:
        return max(length // self.scale, min(length, self.page_len))


def context_of(line: Line, name: str) -> int:
    """The context that a run can hold: two requests as long as it fill the largest pool."""
    return min(line.length(name, line.pool_len * line.scale), line.pool_len // 2)


def entry_of_model(line: Line, models: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The entry of the model of the line, by a pattern in its name; {} for another one."""
    name = f"{line.word('model')} {line.word('model-path')}".lower()
    return next((entry for pattern, entry in models.items() if re.search(pattern, name)), {})


def count_in(line: Line, name: str, options: Mapping[str, Any], key: str, usual: int) -> int:
    """The whole number of this key in the object of an option."""
    if isinstance(value := options.get(key, usual), int) and value > 0:
        return value
    raise line.error(name, f"a whole number for {key}")
