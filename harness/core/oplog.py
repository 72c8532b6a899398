"""The op-log: a file with the configuration and all ops of a run, from which the run can be replayed.

JSON Lines: a header, one op a line, and in a sealed log an end line.

    {"format":3,"engine":"swarden","version":"0.1.0","machine":"engine","configs":[{"page_size":4}],"seed":7,"sealed":true}
    {"op":"submit","max_new_tokens":3,"digest":"9f3a5c"}
    {"op":"step","count":2,"digest":"02b1d4"}
    {"end":2,"sha":"5e884898da280471"}

A fresh log is sealed: it has the digest of the state after each op, and its end line has the number of
ops and a hash of the lines before it, so a truncated or edited file is detected.  A log without digests is not sealed:
a regression case, or a log written by hand.  Digests in such a log are ignored.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import EVERYBODY, read_whole, write_whole
from swarden.harness.core.limits import MAX_ENGINES, MAX_LINE_BYTES, MAX_LINES, MAX_TOKENS
from swarden.harness.core.ops import AnyOp, Op, name_of, num_own_tokens
from swarden.harness.core.validation import NOT_DECODED, shortened, validation_text

FORMAT = 3
ENGINE = "engine"  # the machine of a header that names none
KINDS: dict[str, type[Op]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyOp)}
SHA_LEN = 16  # hex digits

UNSEAL = 'to use the rest of the file, set "sealed" to false in line 1'
BEGIN = f'begin the first line with "format":{FORMAT}'
UNKNOWN_REMEDY = "correct it, or use the build that wrote it"


class OpLogError(UsageError):
    """An op-log that cannot be read or written; its text is one line with the place and the remedy."""

    def __init__(self, path: Path, line: int | None, what: str, remedy: str) -> None:
        super().__init__(path, line, what, remedy)
        self.path = path
        self.line = line
        self.what = what
        self.remedy = remedy

    @property
    def text(self) -> str:
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return " ".join(f"{place}: {self.what}; {self.remedy}".splitlines())


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that a run depends on except its ops."""

    engine: str  # the name of the target
    version: str = ""
    machine: str = ENGINE
    configs: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MAX_ENGINES)]  # of each engine
    seed: int = 0
    run: Annotated[int, msgspec.Meta(ge=0)] = 0  # its ordinal in its batch
    source_hash: str = ""  # of the build that ran
    mutant: str | None = None  # a change to the engine's code, as are the fixes
    fixes: tuple[str, ...] = ()
    model: str = ""  # that the engines run, if any
    faults: list[str] = []  # that the ops can arm
    expected: str | None = None  # the fingerprint with which the run failed, if known
    truncated: str = ""  # the missing part of an incomplete log
    sealed: bool = False


class OpLog:
    """A header, the ops, and the digest after each op; a failed run has no digest after its last op.

    `sealed` of the header is true if and only if there are digests.  It is no dataclass, because a record that has an
    op-log has the text of its file.
    """

    __slots__ = ("digests", "header", "ops")

    def __init__(self, header: Header, ops: Sequence[Op], digests: Sequence[str] | None = None) -> None:
        assert len(digests or ()) <= len(ops), f"{len(digests or ())} digests for {len(ops)} ops"
        self.header = msgspec.structs.replace(header, sealed=digests is not None)
        self.ops, self.digests = ops, digests

    def __repr__(self) -> str:
        return f"OpLog({self.header!r}, {self.ops!r}, {self.digests!r})"

    def __eq__(self, other: object) -> bool:
        facts = (self.header, self.ops, self.digests)
        return isinstance(other, OpLog) and facts == (other.header, other.ops, other.digests)

    def to_bytes(self) -> bytes:
        """The log as the bytes of its file."""
        lines = [_text({"format": FORMAT} | msgspec.to_builtins(self.header))]
        digests = self.digests or ()
        for index, op in enumerate(self.ops):
            digest = {"digest": digests[index]} if index < len(digests) else {}
            lines.append(_text(msgspec.to_builtins(op) | digest))
        if self.header.sealed:
            lines.append(_text({"end": len(self.ops), "sha": _sha(lines)}))
        return b"".join(line + b"\n" for line in lines)

    def save(self, path: Path, *, overwrite: bool = False, mode: int = EVERYBODY, inside: Path | None = None) -> None:
        """Write the file; raises OpLogError if a file with other content exists, unless `overwrite`.

        `mode` has the access rights of a new file; see `write_whole` for `inside`.
        """
        content = self.to_bytes()
        try:
            if not overwrite and path.is_file():
                if path.stat().st_size == len(content) and read_whole(path, most=len(content)) == content:
                    return
                raise OpLogError(path, None, "exists and has other content", "choose another name or remove it")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, mode=mode, inside=inside)
        except OSError as error:
            raise OpLogError(path, None, f"cannot be written: {error.strerror}", "name another path") from error

    @property
    def key(self) -> str:
        """A hash of the configurations and the ops, which decide what is run."""
        return hashlib.blake2b(msgspec.json.encode((self.header.configs, self.ops)), digest_size=8).hexdigest()

    def as_regression(self, expected: str) -> "OpLog":
        """The log as a regression case, which expects this fingerprint: without digests, and not sealed."""
        return self.with_header(expected=expected)

    def with_fixes(self, names: Sequence[str]) -> "OpLog":
        """The log with further fixes, and therefore without digests; the log itself if no fix is given."""
        if not names:
            return self
        return self.with_header(fixes=tuple(dict.fromkeys((*self.header.fixes, *names))))

    def with_header(self, **fields: Any) -> "OpLog":
        """The log with other values of some fields of its header, and therefore without digests."""
        return OpLog(msgspec.structs.replace(self.header, **fields), self.ops)


class NumberedLine(NamedTuple):
    """A line of a file, with its number."""

    path: Path
    number: int
    text: bytes

    def error(self, what: str, remedy: str) -> OpLogError:
        return OpLogError(self.path, self.number, what, remedy)


# --- reading


class OpLogText:
    """The lines of a file with an op-log: first its `header` is read, and then its `log` for a header that is admitted.

    Each method raises OpLogError for the first error in its lines; `path` appears in errors only.
    """

    def __init__(self, content: bytes, path: Path) -> None:
        if content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n") > MAX_LINES:
            raise OpLogError(path, None, f"has more than {MAX_LINES} lines", "cut it")
        self._lines = [
            NumberedLine(path, number, text)
            for number, text in enumerate(content.splitlines(), start=1)
            if text.strip()
        ]
        if not self._lines:
            raise OpLogError(path, None, "is empty", 'write a header first, as in {"format":3,"engine":"swarden",…}')
        self._torn = self._lines[-1] if not content.endswith((b"\n", b"\r")) else None

    @property
    def first(self) -> NumberedLine:
        """The line of the header."""
        return self._lines[0]

    def header(self, replaced: Mapping[str, str]) -> Header:
        """The header, with other values of some fields."""
        raw = _json(self.first, torn=False)
        if "op" in raw:
            raise self.first.error("the header is missing: the first line is an op", BEGIN)
        _check_format(self.first, raw.pop("format", None))
        raw |= replaced
        try:
            return msgspec.convert(raw, Header)
        except msgspec.ValidationError as error:
            raise _invalid(self.first, "the header", raw, error) from error

    def log(self, header: Header, refusal: Callable[[Op], str]) -> OpLog:
        """The log with this header; `refusal` says why its machine cannot have an op, "" if it can."""
        ops: list[Op] = []
        digests: list[object] = []
        end, num_tokens = None, 0
        for line in self._lines[1:]:
            raw = _json(line, torn=line is self._torn)
            if line is self._lines[-1] and "end" in raw and "op" not in raw:
                end = raw
                break
            digests.append(raw.pop("digest", None))
            ops.append(_op(line, raw, header, refusal))
            num_tokens += num_own_tokens(ops[-1])
            if num_tokens > MAX_TOKENS:
                raise line.error(
                    f"the prompts up to here have {num_tokens} tokens, want at most {MAX_TOKENS}", "cut the log"
                )
        if not header.sealed:
            return OpLog(header, ops)
        _check_seal(self._lines, end, len(ops))
        return OpLog(header, ops, _digests(self._lines[1:], digests))


def _json(line: NumberedLine, *, torn: bool) -> dict[str, Any]:
    """The JSON object of a line; `torn` means that the file ends within this line."""
    if len(line.text) > MAX_LINE_BYTES:
        raise line.error(f"a line of {len(line.text)} bytes, want at most {MAX_LINE_BYTES}", "divide it")
    try:
        raw = msgspec.json.decode(line.text.decode())
    except NOT_DECODED as error:
        if torn:
            raise line.error("torn: the file ends within the line", f"remove the line and, {UNSEAL}") from error
        raise line.error(f"not a line of JSON: {_decode_error(error)}", "correct or remove the line") from error
    if not isinstance(raw, dict):
        raise line.error(f"{shortened(raw)} is not an object", 'write an op as in {"op":"step","count":2}')
    return raw


def _check_format(line: NumberedLine, number: object) -> None:
    if number is None:
        raise line.error("the header has no format", BEGIN)
    if number != FORMAT:
        raise line.error(f"format is {shortened(number)}, this build reads {FORMAT}", "use the build that wrote it")


def _op(line: NumberedLine, raw: dict[str, Any], header: Header, refusal: Callable[[Op], str]) -> Op:
    """The op of a line, without its digest."""
    if "op" not in raw:
        if "end" in raw:
            raise line.error("a line follows the end line", "remove one of the two")
        if "format" in raw or "version" in raw:
            raise line.error("a second header", "put each log into a file of its own")
        raise line.error("the line names no op", 'write an op as in {"op":"step","count":2}')
    kind = KINDS.get(raw["op"]) if isinstance(raw["op"], str) else None
    if kind is None:
        raise line.error(f"unknown op {shortened(raw['op'])}, this build knows {', '.join(KINDS)}", UNKNOWN_REMEDY)
    try:
        op = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _invalid(line, str(raw["op"]), raw, error) from error
    if why := refusal(op):
        raise line.error(f"{name_of(op)}: machine {header.machine} {why}", UNKNOWN_REMEDY)
    if op.engine >= len(header.configs):
        what = f"{name_of(op)}: engine is {op.engine}, the header's last is {len(header.configs) - 1}"
        raise line.error(what, "name an engine of the header, or add one there")
    return op


def _check_seal(lines: Sequence[NumberedLine], end: dict[str, Any] | None, num_ops: int) -> None:
    """Check that a sealed log has an end line, and that its count and hash are right."""
    last = lines[-1]
    if end is None:
        raise last.error("truncated: the log is sealed, and its end line is missing", UNSEAL)
    want = {"end": num_ops, "sha": _sha([line.text for line in lines[:-1]])}
    if end != want:
        what = f"changed after it was sealed: the end line is {_text(end).decode()}, want {_text(want).decode()}"
        raise last.error(what, UNSEAL)


def _digests(lines: Sequence[NumberedLine], digests: Sequence[object]) -> list[str]:
    """The digests up to the last op that has one; raises OpLogError if an earlier op has none."""
    texts = [digest for digest in digests if isinstance(digest, str)]
    for line, digest in zip(lines, digests[: len(texts)], strict=False):
        if not isinstance(digest, str):
            raise line.error(f"digest is {shortened(digest)}, and a later op has one", UNSEAL)
    return texts


# --- text


def _invalid(line: NumberedLine, where: str, raw: dict[str, Any], error: msgspec.ValidationError) -> OpLogError:
    return line.error(f"{where}: {validation_text(raw, error)}", UNKNOWN_REMEDY)


def _decode_error(error: UnicodeDecodeError | msgspec.DecodeError | RecursionError) -> str:
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case RecursionError():
            return "nested too deeply"
        case _:
            return str(error).partition(" - at ")[0]


def _text(mapping: dict[str, Any]) -> bytes:
    return msgspec.json.encode(mapping)


def _sha(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()[:SHA_LEN]
