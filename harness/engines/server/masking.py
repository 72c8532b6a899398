"""Secrets in texts: those of a launch command, by their names and shapes, and those whose values are known."""

import json
import re
import shlex
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from urllib.parse import quote

MASK = "***"
LEAST_LEN, LEAST_PART_LEN = 4, 7  # characters of a secret or of a part of it; shorter parts occur in other words
NOUNS = (
    "key|token|secret|passw(?:or)?d|passphrase|pwd|credential|cookie|bearer|auth|authorization|licen[cs]e|header|proxy"
)
NOUN = rf"(?i:(?:{NOUNS})s?)(?![a-z])(?!(?<=[A-Z])[A-Z])"  # at the end of a word: not in `tokenizer`, `keyfile`
NAME = re.compile(rf"{NOUN}|(?i:^|[-_.])(?i:pass|sas|user|env|export)(?=$|[-_.])|^-[Hku]$|^-hft$|^sshpass-p")
KEY = re.compile(rf"(?i)(?:{NOUNS})$")  # its value is secret even if it is a number, unlike `num_tokens`
NUMBER = r"(?i:-?[\d.,:]+|true|false|none|null)"
STAYS = re.compile(r"-k (?:\w+://|[.~]?/).*|(?:-u|--user) [^:]*")  # flags of other programs, users without a password
ASSIGNED = re.compile(r"((?:-e)?((?:--?)?[A-Za-z_][\w.-]*)=)(.*)", re.DOTALL)
PLAIN = (  # of a variable: a path, the name of a model, short words, the name of a backend
    rf"{NUMBER}|[.~]*/[^\s:@]*|\w[\w.-]*/[\w./-]+|[a-z]{{1,16}}(?:[-_][a-z]{{1,16}})*|[A-Z]+(?:_[A-Z]+)+"
)
VARIABLE = re.compile(rf"(?:-e)?[A-Z_][A-Z\d_]*=(?!(?:{PLAIN})$).*", re.DOTALL)
INSIDE = re.compile(  # of a text: a header, a query, an assignment, JSON
    rf"""({NOUN}[\w-]*["']?\s*[:=]\s*["']?(?:(?i:bearer|basic|token)\s+)?)"""
    r"""((?<=")[^"]+|(?<=')[^']+|[^\s"',;&}]+)"""
)
SHAPE = re.compile(
    r"(?<=://)[^\s\"']*(?=@)|(?<![\w/:.-])[\w.-]+:[^\s@/]+(?=@)"  # a user with a password
    r"|(?<=[Bb]earer\s)\S+|(?<=[Bb]asic\s)\S+"
    r"|\b(?:sk|pk|hf|gh[a-z]|github_pat|glpat|xox[a-z]|nvapi|gsk)[-_](?=[\w-]*[A-Z\d])[\w-]{8,}"
    r"|\b(?:AKIA|AIza|eyJ)[\w.-]{8,}|\b[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}"
    r"|(?<![/\w])(?=[^\W_]*\d[^\W_]*\d)(?=\d*[A-Za-z])[^\W_]{16,}|(?<![/\w])[a-z]{24,}"  # two digits: no word
)
SPACE = re.compile(r"[ \t\r\n]")  # between the words of a shell
OPTION = re.compile(r"--.*|-\w")


def masked(command: str) -> str:
    """A command of a shell without secrets; a word that is a command itself is masked word by word."""
    try:
        given = shlex.split(command)
    except ValueError:  # of quotes that are not closed
        given = command.split()
    words: list[str] = []
    option, before = "", ""  # the option whose values follow, and the word before
    for word in given:
        if option and (not word.startswith("-") or (before == option and not OPTION.fullmatch(word))):
            words.append(_hidden(option, word))
            option = option if words[-1] == MASK and option.startswith("--") else ""
        else:
            words.append(_without_secrets(word))
            name = f"{before}{word}" if before == "sshpass" else word
            option = word if word.startswith("-") and "=" not in word and NAME.search(name) else ""
        before = word
    return command if words == given else shlex.join(words)


def _without_secrets(text: str) -> str:
    match = ASSIGNED.fullmatch(text)
    if match and (NAME.search(match[2]) or VARIABLE.fullmatch(text)):
        return match[1] + _hidden(match[2], match[3])
    text = INSIDE.sub(lambda match: match[1] + _hidden(match[1].rstrip("\"' :="), match[2]), text)
    if SPACE.search(text) and not text.startswith(("{", "[")):
        text = masked(text)
    return SHAPE.sub(MASK, text)


def _hidden(name: str, value: str) -> str:
    """The mask, or a value of this name that is no secret: a number of things, true and false."""
    is_number = re.fullmatch(NUMBER, value) and not (KEY.search(name) and value[:1].isdigit())
    return value if is_number or STAYS.fullmatch(f"{name} {value}") else MASK


class Secrets:
    """Secrets whose values are known: they are masked in any text, also escaped, percent-encoded and in base64."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part for value in values for part in _parts(value) if len(part) >= LEAST_LEN}
        forms = {form for part in parts for form in (part, json.dumps(part)[1:-1], quote(part, safe=""))}
        forms |= {b64encode(part.encode()).decode().rstrip("=") for part in parts}
        self._forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms)) or "(?!)", re.IGNORECASE)

    def masked(self, text: str) -> str:
        """The text without them, and without the beginning of one at its end, where it may have been cut."""
        text = self._pattern.sub(MASK, text)
        begun = (form[:length] for form in self._forms for length in range(len(form), LEAST_LEN - 1, -1))
        cut = next(filter(text.endswith, begun), "")
        return f"{text.removesuffix(cut)}{MASK}" if cut else text


def _parts(value: str) -> Iterator[str]:
    """A secret, a password in it, and its long parts: a server can show one without its scheme."""
    yield value
    for word in re.split(r"[\s;,]+", value):
        yield from (part for part in (word, word.partition("=")[2]) if len(part) >= LEAST_PART_LEN)
        with suppress(ValueError):  # no base64, or of no text
            yield from b64decode(word, validate=True).decode().split(":", 1)
