"""The kernels of releases need a GPU, or the interpreter of triton: `TRITON_INTERPRET=1`, with triton installed."""

import os

import pytest
import torch

from swarden.harness.core.registry import target_of
from tests.cuda.released import Taken


@pytest.fixture
def taken(tmp_path):
    """Takes functions from a release: `taken("sglang==0.5.23")(file, *names)`."""
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no GPU")
    pytest.importorskip("triton")

    def of(engine: str) -> Taken:
        name, _, version = engine.partition("==")
        releases = target_of(name).releases
        assert releases is not None
        return Taken(releases.root / version / name, tmp_path)

    return of
