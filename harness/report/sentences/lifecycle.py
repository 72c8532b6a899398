"""The sentences of the laws of lifecycle."""

from collections.abc import Mapping

from invariants.progress import DrainCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    DrainCode.NOT_FULL: "{terms}",
}
