"""A system in a process of its own: what its clients see of it."""

import pytest

from swarden.harness.core.changes import UNCHANGED, Changes
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.ops import Pressure, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.remote import Build, RemoteSystem, TwinFailed, _process_of, _Server

OWN = target_of("swarden")
ENGINE = f"swarden=={OWN.version()}"
CONFIG = {"page_size": 4, "full_pages": 12}
OPS = [Submit(tokens=(1, 2, 3, 4, 5), max_new_tokens=3), Submit(tokens=(1, 2, 9), max_new_tokens=2), *[Step()] * 6]


def build(**config):
    return Build(ENGINE, "engine", [CONFIG | config], "", UNCHANGED)


def test_outputs_are_those_of_the_system_in_this_process():
    """A second system in the same process has none of the requests of the first."""
    [local] = OWN.systems("engine", [OWN.decode(CONFIG)], "")
    results = [local.do(op) for op in OPS]

    for _ in range(2):
        remote = RemoteSystem(build())
        assert [remote.do(op) for op in OPS] == results
        assert remote.reference.expectations == local.reference.expectations
        assert (remote.has_work, remote.drain_bound) == (local.has_work, local.drain_bound)


def test_error_in_the_process_is_raised_here_and_the_process_goes_on():
    with pytest.raises(InvalidConfig, match="page_size: 3 is not one of"):
        RemoteSystem(build(page_size=3))

    assert RemoteSystem(build()).do(Pressure(pages=1))


def test_death_of_the_process_is_an_error_and_the_next_system_has_a_new_one():
    remote = RemoteSystem(build())
    _process_of(ENGINE).kill()

    with pytest.raises(TwinFailed, match="the process of the twin ended in do"):
        remote.do(Step())
    assert RemoteSystem(build()).do(OPS[0])


def test_changes_are_planted_after_others_that_could_not_be():
    """A mutant that the target does not have ends the changes of the build before."""
    known = Changes(mutant=OWN.mutants()[0].id)
    server = _Server()
    server.build(build()._replace(changes=known))
    with pytest.raises(UsageError):
        server.build(build()._replace(changes=Changes(mutant="no-such")))
    server.build(build()._replace(changes=known))

    assert OWN.mutants()[0].patch.is_planted
    server.build(build())
    assert not OWN.mutants()[0].patch.is_planted
