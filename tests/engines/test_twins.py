"""A release gives the same outputs under two settings; the twin runs in a process of its own."""

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.core.twins import twin_for

OPS = [
    Submit(tokens=(1, 2, 3, 4, 5, 6, 7, 8, 9), max_new_tokens=6),
    Step(count=4),
    Submit(tokens=(1, 2, 3, 4, 5, 6, 7, 8, 5), max_new_tokens=3),
    Submit(tokens=(1, 2, 3, 4), max_new_tokens=8),
    Drain(),
]


def failures(engine: str) -> dict[str, str | None]:
    """The failure of a run with each twin that the default configuration has."""
    target, found = target_of(engine), {}
    config = target.decode({})
    for name in target.twins(config):
        twin = twin_for(target, config, name, 0)
        if twin is not None:
            header = Header(engine=target.name, version=target.version(), configs=[{}], twin=twin)
            failure = run_log(OpLog(header, OPS)).failure
            found[name] = failure.fingerprint if failure is not None else None
    return found


@pytest.mark.parametrize("engine", ["sglang==0.5.23", "vllm==0.33.0"])
def test_release_agrees_with_its_twins(in_process_of, engine):
    found = in_process_of(engine, failures, engine)

    assert len(found) >= 3
    assert set(found.values()) == {None}
