"""The canary of a night: how long it is searched for, and what it proves."""

from math import inf

import pytest

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive
from swarden.harness.nightly.canary import limit_seconds
from swarden.harness.nightly.night import Coordinator, begin
from swarden.harness.nightly.night_records import CANARY_RUNS, Canary
from swarden.harness.nightly.pool import JobPool
from swarden.harness.nightly.verdict import judgement_of
from tests.harness.nightly.some_nights import ORDER, night_of, table


@pytest.mark.parametrize(("missing", "code"), [(0, ExitCode.RED), (1, ExitCode.CLEAN)])
def test_canary_that_is_not_found_is_missed_only_after_enough_runs(tmp_path, missing, code):
    canary = Canary(engine=OWN, mutant="B46", runs=CANARY_RUNS - missing, seconds=15.0)

    night = night_of(tmp_path, table(find_canary=canary))

    assert night.exit_code == code
    assert ("B46 not found in 15 s" in night.engines[0].why_not_judged) == bool(missing)


@pytest.mark.parametrize(("minutes", "engines", "seconds"), [(1, 1, 15.0), (2, 3, 10.0), (None, 1, inf)])
def test_canaries_of_all_engines_take_a_quarter_of_the_minutes(tmp_path, minutes, engines, seconds):
    night = begin(Archive(tmp_path), ORDER._replace(minutes=minutes))
    night.engines *= engines

    assert limit_seconds(Coordinator(Archive(tmp_path), night, JobPool(table(), 1), ProcessLimits(60.0))) == seconds


def test_release_that_no_planted_bug_fits_is_not_judged(tmp_path):
    """The night is not red, but nothing shows that the laws would find a bug."""
    night = night_of(tmp_path, table(find_canary=Canary(engine=OWN, mutant="")))

    assert "no planted bug fits this release" in night.engines[0].why_not_judged
    assert judgement_of(night) == (ExitCode.CLEAN, "not judged")
