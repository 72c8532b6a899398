"""The op-log: everything that a run was, as a file that replays it.

JSON Lines: a header, one op a line, and in a sealed log an end line.

    {"version":1,"machine":"engine","engines":[{"page_size":4,"full_pages":32}],"seed":7,"sealed":true}
    {"op":"submit","max_new_tokens":3,"digest":"9f3a5c"}
    {"op":"step","count":2,"digest":"02b1d4"}
    {"end":2,"sha":"5e884898da280471"}

A fresh log is sealed: it has the digest of the state after each op, and its end line counts the ops
and hashes the lines before, so a file that was cut or edited is known.  Without digests a log is not
sealed: regression cases and what is written by hand.  What is left of a digest there is not read.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec

from engine_under_test.config import EngineConfig
from engine_under_test.errors import ConfigError
from fakes.catalog import FAULTS
from harness.core.errors import UsageError
from harness.core.files import write_whole
from harness.core.ops import OPS_OF, AnyOp, Op, name_of
from harness.core.registry import ROLES_OF, RUN_MODELS
from harness.engines.own.models import MODELS

VERSION = 1
MACHINES = tuple(OPS_OF)
KINDS: dict[str, type[Op]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyOp)}
SHA_LEN = 16  # hex digits
MAX_SHOWN = 40  # characters of a wrong value

UNSEAL = 'to use what is there, set "sealed" to false in line 1'
UNKNOWN_REMEDY = "correct it, or use the build that wrote it"


class OpLogError(UsageError):
    """An op-log that cannot be read or written; its text is one line with the place and the remedy."""

    def __init__(self, path: Path, line: int | None, what: str, remedy: str) -> None:
        super().__init__(path, line, what, remedy)
        self.path = path
        self.line = line
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return " ".join(f"{place}: {self.what}; {self.remedy}".splitlines())


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a run is made of beside its ops; each engine is the configuration as a mapping.

    `run` is the ordinal in its campaign, `source_hash` the build that ran it, `model` what its engines run
    instead of the stand-in, `faults` those that its ops arm, `expected` the fingerprint of a regression case.
    `truncated` says what of the run is not in the ops, in a log whose writer could not keep all of it.
    """

    version: int = VERSION
    machine: str
    engines: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    seed: int = 0
    run: Annotated[int, msgspec.Meta(ge=0)] = 0
    source_hash: str = ""
    mutant: str | None = None
    model: str = ""
    faults: list[str] = []
    expected: str | None = None
    truncated: str = ""
    sealed: bool = False


@dataclass(slots=True)
class OpLog:
    """A header, ops, and the digests after the first of them; whoever failed has none after its last op.

    The header says `sealed` exactly where there are digests, whatever it said before.
    """

    header: Header
    ops: Sequence[Op]
    digests: Sequence[str] | None = None

    def __post_init__(self) -> None:
        num_digests = len(self.digests or ())
        assert num_digests <= len(self.ops), f"{num_digests} digests for {len(self.ops)} ops"
        self.header = msgspec.structs.replace(self.header, sealed=self.digests is not None)

    @classmethod
    def load(cls, path: Path) -> "OpLog":
        """Read a file; raises OpLogError at the first thing that is wrong with it."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise OpLogError(path, None, f"cannot be read: {error.strerror}", "name an op-log") from error
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "OpLog":
        """What a file holds; `path` is for the errors."""
        lines = [Line(path, number, text) for number, text in enumerate(content.splitlines(), start=1) if text.strip()]
        if not lines:
            raise OpLogError(path, None, "is empty", 'write a header first, as in {"version":1,"machine":"engine",…}')
        header = _header(lines[0])
        torn = lines[-1] if not content.endswith((b"\n", b"\r")) else None
        raws = [_json(line, torn=line is torn) for line in lines[1:]]
        ended = bool(raws) and "end" in raws[-1] and "op" not in raws[-1]
        num_ops = len(raws) - ended
        digests = [raw.pop("digest", None) for raw in raws[:num_ops]]
        ops = [_op(line, raw, header) for line, raw in zip(lines[1:], raws[:num_ops], strict=False)]
        if not header.sealed:
            return cls(header, ops)
        _check_seal(lines, raws[-1] if ended else None, num_ops)
        return cls(header, ops, _known(lines[1:], digests))

    def to_bytes(self) -> bytes:
        """The file's content."""
        lines = [_text({"version": VERSION} | msgspec.to_builtins(self.header))]
        digests = self.digests or ()
        for index, op in enumerate(self.ops):
            digest = {"digest": digests[index]} if index < len(digests) else {}
            lines.append(_text(msgspec.to_builtins(op) | digest))
        if self.header.sealed:
            lines.append(_text({"end": len(self.ops), "sha": _sha(lines)}))
        return b"".join(line + b"\n" for line in lines)

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the file whole or not at all; raises OpLogError where another one is, unless `overwrite`."""
        content = self.to_bytes()
        try:
            if not overwrite and path.exists():
                if path.read_bytes() == content:
                    return
                raise OpLogError(path, None, "exists and holds something else", "choose another name or remove it")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        except OSError as error:
            raise OpLogError(path, None, f"cannot be written: {error.strerror}", "name a place that can be") from error

    def as_regression(self, expected: str) -> "OpLog":
        """The ops and the fingerprint that they must show; no digests, and not sealed."""
        return OpLog(msgspec.structs.replace(self.header, expected=expected), self.ops)


class Line(NamedTuple):
    """A line of a file, and where it stands."""

    path: Path
    number: int
    text: bytes

    def error(self, what: str, remedy: str) -> OpLogError:
        return OpLogError(self.path, self.number, what, remedy)


# --- reading


def _json(line: Line, *, torn: bool) -> dict[str, Any]:
    """The object on a line; `torn` says that the file ends within this line."""
    try:
        raw = msgspec.json.decode(line.text.decode())
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        if torn:
            raise line.error("torn: the file ends within the line", f"remove the line and, {UNSEAL}") from error
        raise line.error(f"not a line of JSON: {_unreadable(error)}", "correct or remove the line") from error
    if not isinstance(raw, dict):
        raise line.error(f"{_shown(raw)} is not an object", 'write an op as in {"op":"step","count":2}')
    return raw


def _header(line: Line) -> Header:
    raw = _json(line, torn=False)
    if "version" not in raw:
        what = "the header is missing: the first line is an op" if "op" in raw else "the header has no version"
        raise line.error(what, f'begin the first line with "version":{VERSION}')
    version = raw["version"]
    if version is True or version != VERSION:
        raise line.error(f"version is {_shown(version)}, this build reads {VERSION}", "use the build that wrote it")
    try:
        header = msgspec.convert(raw, Header)
    except msgspec.ValidationError as error:
        raise _invalid(line, "the header", raw, error) from error
    if header.machine not in MACHINES:
        what = f"the header: machine is {_shown(header.machine)}, want {', '.join(MACHINES)}"
        raise line.error(what, UNKNOWN_REMEDY)
    if header.model and (header.machine not in RUN_MODELS or header.model not in MODELS):
        known = ", ".join(MODELS if header.machine in RUN_MODELS else ["none"])
        what = f"the header: model is {_shown(header.model)}, machine {header.machine} runs {known}"
        raise line.error(what, UNKNOWN_REMEDY)
    for fault in header.faults:
        if fault not in FAULTS:
            what = f"the header: unknown fault {fault}, this build knows {', '.join(FAULTS)}"
            raise line.error(what, UNKNOWN_REMEDY)
    for index, mapping in enumerate(header.engines):
        _check_config(line, index, mapping)
    _check_roles(line, header)
    return header


def _check_config(line: Line, index: int, mapping: dict[str, Any]) -> None:
    """Types first: the configuration compares what it is given."""
    remedy = "correct the configuration"
    try:
        msgspec.convert(mapping, EngineConfig)
        EngineConfig.from_mapping(mapping)
    except msgspec.ValidationError as error:
        raise line.error(f"engine {index}: {_told(mapping, error)}", remedy) from error
    except ConfigError as error:
        raise line.error(f"engine {index}: {error}", remedy) from error


def _check_roles(line: Line, header: Header) -> None:
    """Linked engines are what their machine makes of them; all others serve alone."""
    want = ROLES_OF.get(header.machine, ("both",) * len(header.engines))
    roles = tuple(mapping.get("role", "both") for mapping in header.engines)
    if roles != want:
        what = (
            f"the header: the engines' roles are {', '.join(roles)}, machine {header.machine} wants {', '.join(want)}"
        )
        raise line.error(what, "correct the configurations")


def _op(line: Line, raw: dict[str, Any], header: Header) -> Op:
    """The op of a line, without its digest."""
    if "op" not in raw:
        if "end" in raw:
            raise line.error("something stands behind the end line", "remove one or the other")
        if "version" in raw:
            raise line.error("a second header", "put each log into a file of its own")
        raise line.error("no op is named", 'write an op as in {"op":"step","count":2}')
    kind = KINDS.get(raw["op"]) if isinstance(raw["op"], str) else None
    if kind is None:
        raise line.error(f"unknown op {_shown(raw['op'])}, this build knows {', '.join(KINDS)}", UNKNOWN_REMEDY)
    try:
        op = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _invalid(line, str(raw["op"]), raw, error) from error
    if kind not in OPS_OF[header.machine]:
        known = ", ".join(str(one.__struct_config__.tag) for one in OPS_OF[header.machine])
        raise line.error(f"{name_of(op)}: machine {header.machine} has no such op, it knows {known}", UNKNOWN_REMEDY)
    if op.engine >= len(header.engines):
        what = f"{name_of(op)}: engine is {op.engine}, the header's last is {len(header.engines) - 1}"
        raise line.error(what, "name one that the header has, or add it there")
    return op


def _check_seal(lines: Sequence[Line], end: dict[str, Any] | None, num_ops: int) -> None:
    """The end line of a sealed log is there and fits what stands before it."""
    last = lines[-1]
    if end is None:
        raise last.error("truncated: the log is sealed, and its end line is missing", UNSEAL)
    found = {"end": num_ops, "sha": _sha([line.text for line in lines[:-1]])}
    if end != found:
        what = f"changed after it was sealed: the end line is {_text(end).decode()}, want {_text(found).decode()}"
        raise last.error(what, UNSEAL)


def _known(lines: Sequence[Line], digests: Sequence[object]) -> list[str]:
    """The digests of the first ops; none may be missing between two."""
    known = [digest for digest in digests if isinstance(digest, str)]
    for line, digest in zip(lines, digests[: len(known)], strict=False):
        if not isinstance(digest, str):
            raise line.error(f"digest is {_shown(digest)}, and a later op has one", UNSEAL)
    return known


# --- words


def _invalid(line: Line, where: str, raw: dict[str, Any], error: msgspec.ValidationError) -> OpLogError:
    return line.error(f"{where}: {_told(raw, error)}", UNKNOWN_REMEDY)


def _unreadable(error: UnicodeDecodeError | msgspec.DecodeError | RecursionError) -> str:
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case RecursionError():
            return "nested too deeply"
        case _:
            return str(error).partition(" - at ")[0]


def _told(raw: dict[str, Any], error: msgspec.ValidationError) -> str:
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
    return f"{place} is {_shown(_value_at(raw, place))}, want {want}"


def _value_at(raw: Any, place: str) -> Any:
    """What stands in a place such as `recipe.path[1]`."""
    for name in place.replace("]", "").replace("[", ".").split("."):
        raw = raw[int(name)] if isinstance(raw, list) else raw[name]
    return raw


def _shown(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"


def _text(mapping: dict[str, Any]) -> bytes:
    return msgspec.json.encode(mapping)


def _sha(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()[:SHA_LEN]
