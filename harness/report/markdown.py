"""Tables and texts in Markdown."""

import re
from collections.abc import Iterable, Sequence

from swarden.harness.core.printable import printable

SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *lines] if lines else ["None."]


def plain(text: str) -> str:
    """Text in one line that Markdown and HTML do not interpret."""
    return SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
