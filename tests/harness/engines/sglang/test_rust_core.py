"""What counts as the same answer of two tree cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from swarden.harness.engines.sglang.parts.rust_core import Cores, CoresDifferError


@dataclass
class Dropped:
    host_frees: dict[str, list[torch.Tensor]]


@dataclass
class Core:
    freed: Sequence[tuple[int, int]]

    def drop(self) -> Dropped:
        return Dropped({"full": [torch.tensor(slots) for slots in self.freed]})


def cores(*rust: tuple[int, int]) -> Cores:
    release: Any = SimpleNamespace(torch=torch)
    return Cores(release, Core([(4, 5), (8, 9)]), Core(rust))


def test_cores_may_free_in_another_order():
    assert len(cores((8, 9), (4, 5)).drop().host_frees["full"]) == 2


def test_cores_must_free_the_same_slots():
    with pytest.raises(CoresDifferError, match="drop: the Python core answers"):
        cores((8, 9), (4, 7)).drop()
