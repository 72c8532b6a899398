"""The laws that an op-log violates, and those that apply to an engine, in the process of a release."""

from harness.core.oplog import OpLog
from harness.core.registry import target_of
from harness.core.replay import repeat
from invariants.catalog import catalog_of
from tests.harness.engines.some_draws import RandomDraw

# Configurations of our own engine, which between them have all its parts; the others are drawn.
OWN_CONFIGS = (
    {"swa_pages": 64, "sliding_window": 32, "lookahead_tokens": 2, "draft_tokens": 2},
    {"swa_pages": 64, "sliding_window": 32, "host_full_pages": 64, "host_swa_pages": 64},
)
DRAWS = 40


def laws_of(path, engine):
    """The laws that fail, or the errors; each run must end alike, and the engine must have the faults of the log."""
    repeated = repeat(OpLog.load(path, engine=engine), runs=2)
    assert repeated.first_difference is None
    driver = repeated.reported.driver
    assert not driver.counts.noops["inject"], "the configuration has no such fault in this release"
    failure = driver.failure
    return {name.split("/")[0] for name in failure.fingerprints} if failure is not None else set()


def law_of(path, engine):
    """The law or error that an op-log was saved for."""
    return str(OpLog.load(path, engine=engine).header.expected).split("/")[0]


def applicable(engine):
    """The laws, and the contracts that the engine declares, that apply to one of its configurations at least."""
    target = target_of(engine)
    if engine == "swarden":
        configs = [target.decode(settings) for settings in OWN_CONFIGS]
    else:
        configs = [target.config(RandomDraw(seed)) for seed in range(DRAWS)]
    missing = frozenset.intersection(*[target.build(config).capture().missing for config in configs])
    return {
        one.name
        for one in catalog_of(target.contracts).invariants
        if one.needs.isdisjoint(missing) and not (one.on and missing.issuperset([kind.__name__ for kind in one.on]))
    }
