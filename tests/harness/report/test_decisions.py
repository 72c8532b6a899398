"""The branches by which an engine passes over a request: found in a run, with the numbers of their conditions."""

import sys
from dataclasses import dataclass

import pytest

from swarden.harness.core.origins import EngineCode
from swarden.harness.report.decisions import DecisionTracer


@dataclass
class Req:
    rid: str
    num_pages: int


@dataclass
class Pool:
    free: int
    reserved: int

    @property
    def available(self):
        return self.free - self.reserved

    def num_needed(self, req):
        return req.num_pages + 1


@dataclass
class Admission:
    pool: Pool

    def admit(self, req):
        needed = self.pool.num_needed(req)
        if needed > self.pool.available:
            return None
        return needed

    def admit_first(self, queue):
        admitted = []
        for req in queue:
            if self.admit(req) is None:
                break
            admitted.append(req)
        return admitted

    def can_chunk(self, req):
        return req.num_pages <= self.pool.free

    def admit_or_shrink(self, req, chunk):
        fits = req.num_pages < self.pool.free
        if fits:
            return True
        if chunk is None:
            return False
        return chunk


def reported(act, *names):
    tracer = DecisionTracer(EngineCode(__name__, decisions=[f"{__name__}.Admission{name}" for name in names or [""]]))
    with tracer.tracing():
        act()
    return tracer.found


def test_refused_request_is_reported_with_its_condition_and_both_numbers():
    admission = Admission(Pool(free=5, reserved=3))

    [refused] = reported(lambda: admission.admit(Req("0007", 2)))

    assert (refused.request_id, refused.condition) == (7, "needed > self.pool.available")
    values = dict(refused.values)
    assert (values["needed"], values["self.pool.available"]) == ("3", "2")


def test_values_include_those_from_which_a_number_was_computed():
    [refused] = reported(lambda: Admission(Pool(free=5, reserved=3)).admit(Req("1", 2)))

    assert {"self.free": "5", "self.reserved": "3", "self.pool.num_needed(…)": "3"}.items() <= dict(
        refused.values
    ).items()


def test_admitted_request_is_not_reported():
    assert reported(lambda: Admission(Pool(free=5, reserved=0)).admit(Req("1", 2))) == []


def test_loop_that_ends_at_a_request_is_reported_after_the_function_that_refused_it():
    queue = [Req("1", 1), Req("2", 9), Req("3", 1)]

    refusals = reported(lambda: Admission(Pool(free=5, reserved=0)).admit_first(queue))

    assert [(refusal.request_id, refusal.condition) for refusal in refusals] == [
        (2, "needed > self.pool.available"),
        (2, "self.admit(req) is None"),
    ]


@pytest.mark.parametrize(("num_pages", "count"), [(5, 0), (6, 1)], ids=["true", "false"])
def test_returned_comparison_is_reported_if_it_is_false(num_pages, count):
    refusals = reported(lambda: Admission(Pool(free=5, reserved=0)).can_chunk(Req("1", num_pages)))

    assert [dict(refusal.values) for refusal in refusals] == [{"req.num_pages": "6", "self.pool.free": "5"}] * count


def test_refusal_below_a_branch_that_accepts_has_the_condition_of_both():
    [refused] = reported(lambda: Admission(Pool(free=2, reserved=0)).admit_or_shrink(Req("1", 2), None))

    assert refused.condition == "not fits and chunk is None"
    assert {"fits": "False", "req.num_pages": "2", "self.pool.free": "2"}.items() <= dict(refused.values).items()


def test_only_named_functions_are_followed():
    assert reported(lambda: Admission(Pool(free=0, reserved=0)).admit(Req("1", 2)), ".can_chunk") == []


def test_tracer_of_a_debugger_is_restored():
    before = sys.gettrace()

    [refused] = reported(lambda: Admission(Pool(free=0, reserved=0)).admit(Req("1", 2)))

    assert refused.place.endswith(" admit")
    assert sys.gettrace() is before
