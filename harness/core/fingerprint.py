"""Fingerprints: names of kinds of failures, without numbers, ids and addresses.

Runs that fail in the same way have the same fingerprint.
"""

import re
from collections.abc import Iterable
from itertools import islice
from traceback import walk_tb
from types import FrameType

from harness.core.errors import RemoteError
from invariants.violation import Violation

MAX_SLUG_LEN = 120

NESTED = re.compile(r"\.<locals>\.<.*$")  # a comprehension or a lambda is part of its function


def fingerprint(violation: Violation) -> str:
    """The law, the kind of its subject, and the code, as in `unit_has_one_owner/swa page/free_in_use`.

    The owners are no part of it: which owner a bug meets depends on the traffic.
    """
    subject = " ".join(filter(None, (violation.subject.pool, violation.subject.kind)))
    return f"{violation.law}/{subject}/{violation.code.value}"


def current_fingerprint(name: str) -> str:
    """The fingerprint with this name, or with the longer name of an earlier build, which ends with kinds of owners.

    As in `unit_has_one_owner/swa page/free_in_use/free+tree`.  The functions in the name of an error have a dot.
    """
    parts = name.split("/")
    return "/".join(parts[:3]) if len(parts) == 4 and "." not in parts[3] else name


def fingerprints(violations: Iterable[Violation]) -> list[str]:
    """The distinct fingerprints in the order of the violations; the first one names the finding."""
    return list(dict.fromkeys(map(fingerprint, violations)))


def fingerprint_of_error(error: BaseException, package: str) -> str:
    """The type of an error, and the innermost function of `package` in its traceback with its caller there.

    The caller tells apart the bugs that end in one allocator. Without a function of `package`, the innermost of all.
    As in `AccountingError/pools.ledger.Ledger.free/pools.paired.PairedPools.release`.
    """
    if isinstance(error, RemoteError):
        return error.fingerprint
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    own = [frame for frame in frames if module_of(frame).split(".")[0] == package]
    functions = dict.fromkeys(_function(frame).removeprefix(f"{package}.") for frame in reversed(own or frames[-1:]))
    return "/".join([type(error).__name__, *islice(functions, 2)])


def slug(name: str) -> str:
    """A fingerprint as a file name."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)[:MAX_SLUG_LEN].strip("-.")


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _function(frame: FrameType) -> str:
    return f"{module_of(frame)}.{NESTED.sub('', frame.f_code.co_qualname)}"
