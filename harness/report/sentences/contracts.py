"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {}
