"""Features of a run: equal for equal runs, new where something new happened."""

import msgspec

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Step, Submit
from swarden.harness.core.replay import run_log
from swarden.harness.search.run import Features

SERVED = (Submit(max_new_tokens=3), Step(count=4), Drain())


def features_of(*ops, of=Features.hashes):
    features = Features()
    log = OpLog(Header(engine="swarden", configs=[{}]), list(ops))
    run_log(log, observe=lambda _, change: features.look(change))
    return of(features)


def test_equal_runs_have_equal_features():
    assert features_of(*SERVED) == features_of(*SERVED)


def test_other_end_of_a_request_is_a_new_feature():
    aborted = (SERVED[0], Step(), Abort(), Drain())

    assert features_of(*aborted) - features_of(*SERVED)


def test_many_times_more_of_the_same_is_a_new_feature():
    def requests(count, of=Features.hashes):
        ops = [msgspec.structs.replace(SERVED[0], namespace=namespace) for namespace in range(count)]
        return features_of(*ops, Drain(), of=of)

    assert requests(9) - requests(2)
    assert requests(2, of=Features.kinds) == requests(1, of=Features.kinds)
