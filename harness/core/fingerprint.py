"""Fingerprints: names of failures without numbers, ids and addresses, equal for runs that fail in the same way."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from traceback import walk_tb
from types import FrameType

from swarden.harness.core.errors import RemoteError
from swarden.harness.core.origins import NESTED, is_within, module_of
from swarden.invariants.violation import Violation

MAX_SLUG_LEN = 120


def fingerprint(violation: Violation) -> str:
    """The law, the kind of its subject, and the name of the code, as in `unit_has_one_owner/swa page/free_in_use`.

    Owners are not part of a fingerprint: which owner a bug meets depends on the traffic.
    """
    subject = " ".join(filter(None, (violation.subject.pool, violation.subject.kind)))
    return f"{violation.law}/{subject}/{violation.code.name.lower()}"


def fingerprints(violations: Iterable[Violation]) -> list[str]:
    """The distinct fingerprints in the order of the violations; the first one names the finding."""
    return list(dict.fromkeys(map(fingerprint, violations)))


def law_of(fingerprint: str) -> str:
    """The invariant or the error that a fingerprint names first."""
    return fingerprint.partition("/")[0]


def is_same(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two failures are the same, by their fingerprints: one has the first fingerprint of the other.

    A run that passes has no fingerprints, and is the same as none.
    """
    return bool(names and others) and (names[0] in others or others[0] in names)


def fingerprint_of_error(error: BaseException, package: str, core: str = "") -> str:
    """The type of an error, and the innermost function of `package` in its traceback with its caller there.

    With a `core`, a part of the package, functions elsewhere are left out if there is one of the core.  The caller
    distinguishes bugs that end in the same allocator.  Without a function of `package`, the innermost
    functions of all are named. As in `AccountingError/pools.ledger.Ledger.free/pools.paired.PairedPools.release`.
    """
    if isinstance(error, RemoteError):
        return error.fingerprint
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    own = [frame for frame in frames if is_within(module_of(frame), package)]
    own = [frame for frame in own if is_within(module_of(frame), core or package)] or own
    functions = dict.fromkeys(_function(frame).removeprefix(f"{package}.") for frame in reversed(own or frames[-1:]))
    return "/".join([type(error).__name__, *islice(functions, 2)])


def slug(name: str) -> str:
    """A fingerprint as a file name."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)[:MAX_SLUG_LEN].strip("-.")


def _function(frame: FrameType) -> str:
    return f"{module_of(frame)}.{frame.f_code.co_qualname.partition(NESTED)[0]}"
