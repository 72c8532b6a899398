"""The sentences of the laws of content."""

from collections.abc import Mapping

from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {}
