"""A name for a kind of failure, equal in every run that shows it: without numbers, ids and addresses."""

import re
from collections.abc import Iterable
from traceback import walk_tb
from types import FrameType

from invariants.view import FENCE, FREE, NODE_LETTER, OUTSIDE_KIND, TREE_KIND, Owner
from invariants.violation import Prose, Violation

NOBODY = "nobody"
MAX_SLUG_LEN = 120

NUMBERED_PLURAL = re.compile(r"\b([a-z]+)s (?=\d)")  # pages 3, 5: how many there are must not show
NUMBER = re.compile(r"\b0x[0-9a-f]+\b|\b[a-z]?\d[\w.]*|\d+")  # and ids: r3, n7
WORD = re.compile(r"[A-Za-z_]+")
ASIDE = re.compile(r"\([^()]*\)")  # the terms of an equation: who else holds something
NAMED_OWNER = re.compile(r"\b([a-z_]+) ([a-z])\d+\b")
BARE_OWNER = re.compile(rf"\b({FREE.kind}|{FENCE.kind}|{OUTSIDE_KIND}|{NOBODY})\b(?! \d)")  # free 4 is a count
NESTED = re.compile(r"\.<locals>\.<.*$")  # a comprehension or a lambda is part of its function


def fingerprint(violation: Violation) -> str:
    """The invariant, the subject without its ids, and the kinds of owners that the detail names.

    As in `unit_has_one_owner/swa page/double_free/free+tree`.
    """
    if violation.code is Prose.TEXT:
        kinds = _owner_kinds(str(violation.values["text"]))
        parts = [violation.law, _subject(violation.subject.kind), "+".join(kinds)]
    else:
        subject = " ".join(filter(None, (violation.subject.pool, violation.subject.kind)))
        owners = {owner.kind for value in violation.values.values() for owner in _owners_in(value)}
        parts = [violation.law, subject, str(violation.code.value), "+".join(sorted(owners))]
    return "/".join(part for part in parts if part)


def fingerprints(violations: Iterable[Violation]) -> list[str]:
    """Each once, in the order of the violations; the first names the finding."""
    return list(dict.fromkeys(map(fingerprint, violations)))


def fingerprint_of_error(error: BaseException, package: str) -> str:
    """The type of an error, and the innermost function of `package` in its traceback, or of any package.

    As in `AccountingError/pools.ledger.Ledger.free`.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    own = [frame for frame in frames if module_of(frame).split(".")[0] == package]
    where = [_function(frame).removeprefix(f"{package}.") for frame in (own or frames)[-1:]]
    return "/".join([type(error).__name__, *where])


def slug(name: str) -> str:
    """A fingerprint as a file name."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)[:MAX_SLUG_LEN].strip("-.")


def _owners_in(value: object) -> Iterable[Owner]:
    if isinstance(value, Owner):
        return [value]
    return [one for one in value if isinstance(one, Owner)] if isinstance(value, list | tuple) else []


def _subject(subject: str) -> str:
    singular = NUMBERED_PLURAL.sub(r"\1 ", subject)
    return " ".join(WORD.findall(NUMBER.sub("", singular)))


def _owner_kinds(detail: str) -> list[str]:
    """Sorted, each once: how many of a kind there are is a count."""
    claims = ASIDE.sub("", detail)
    named = {kind for kind, letter in NAMED_OWNER.findall(claims) if letter == _letter(kind)}
    return sorted(named | set(BARE_OWNER.findall(claims)))


def _letter(kind: str) -> str:
    """What the ids of a kind of owner begin with; a node is not an owner, the tree is."""
    if kind == TREE_KIND:
        return NODE_LETTER
    return kind[0] if kind[0] != NODE_LETTER else ""


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _function(frame: FrameType) -> str:
    return f"{module_of(frame)}.{NESTED.sub('', frame.f_code.co_qualname)}"
