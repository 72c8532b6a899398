"""The sentences of the laws of content."""

from collections.abc import Mapping

from invariants.laws.content.copies import CopyCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    CopyCode.DIFFERS: "differs from its copy, {copy}",
}
