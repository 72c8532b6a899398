"""The length of a campaign, and the coverage that it needs to be green."""

from dataclasses import dataclass

MAX_RUN_STEPS = 600  # of all engines; 4 % of the runs of our engine had more, and took 40 % of the CPU time
MAX_RUN_TOKENS = 1 << 18  # of prompts; a run ends here, or at MAX_RUN_STEPS


@dataclass(frozen=True, slots=True)
class Profile:
    """The parameters of a campaign, with a name.

    A batch is one Hypothesis search from one seed, with runs of one length; the lengths of the batches rotate through
    `calls_per_run`: calls of rules, each of which applies one op or a scene.  The runs of one search are alike, so many
    short searches reach more states. `probe_floor` is the share of runs that must reach each probe.  Every
    `recheck_every`-th passing run is run twice. `must_evaluate` requires at least one evaluation of every invariant
    that the engine supports.  A campaign of fewer than `min_runs` runs has the verdict "not judged".
    """

    name: str
    minutes: float
    runs_per_batch: int
    calls_per_run: tuple[int, ...]
    probe_floor: float
    must_evaluate: bool
    min_runs: int
    recheck_every: int = 20

    def calls_of(self, batch: int, *, num_turns: int) -> int:
        """The length of the runs of a batch; each of `num_turns` machines gets the next length in its next turn."""
        return self.calls_per_run[sum(divmod(batch, num_turns)) % len(self.calls_per_run)]


# Mostly short runs: most bugs need a configuration and few ops, and short runs try three times as many configurations.
CALLS_PER_RUN = tuple(length for last in (12, 60, 12, 24, 16) for length in (8, 8, 8, last))

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("smoke", 0.15, 8, (8, 30), probe_floor=0.0, must_evaluate=False, min_runs=100),
        Profile("default", 3.0, 8, CALLS_PER_RUN, probe_floor=0.0, must_evaluate=True, min_runs=400),
        Profile("nightly", 20.0, 20, (12, 30, 100), probe_floor=0.01, must_evaluate=True, min_runs=2000),
    )
}

MAX_NOOP_SHARE = 0.5
MIN_OCCURRENCES = 20  # of an op, before its share of no-ops is judged
SHRINK_CPU_SECONDS = 60.0  # of one finding
SHRINK_SECONDS = 120.0  # of all findings of a campaign
