"""Whether the level content notices perturbations: op-logs with one each, and the same without it.

Each run serves random requests, on a tag forward or on a tiny model in turn.  Its first part is healthy.  If the
changed page is freed before it is read, or if the run has nothing to change, the run is moot, and the next seed takes
its place.
"""

from collections import Counter
from enum import StrEnum
from random import Random

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Inject, Op, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import run_log
from swarden.harness.engines.own.faults import PERTURBATIONS, SENT
from swarden.harness.engines.own.target import PERTURBED, PERTURBED_PAIR, SIDES
from swarden.harness.perturbed.system import Misattributed, PerturbedSystem, Unnoticed

CONFIG = EngineConfig(
    page_size=4,
    full_pages=40,
    swa_pages=24,
    sliding_window=6,
    max_running_requests=4,
    max_context_len=128,
    chunk_len=16,
    host_full_pages=80,
    host_swa_pages=40,
    load_back_threshold=1,
)
MODEL = "tiny-gemma3"
HEALTHY_STEPS = (4, 20)
MOST_STEPS = 60  # after the perturbation; every page is swept in them
MOST_SEEDS = 20  # for each run that is not moot
FAMILIES = 3  # of prompts with the same start
SUBMISSIONS = 0.4  # per step


class PerturbationOutcome(StrEnum):
    NOTICED = "noticed"
    MISATTRIBUTED = "misattributed"
    LATE = "late"
    MISSED = "missed"
    MOOT = "moot"
    FALSE_ALARM = "false alarm"


def text(outcomes: Counter[PerturbationOutcome]) -> str:
    return ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in PerturbationOutcome)


def measure_all(runs: int) -> dict[str, Counter[PerturbationOutcome]]:
    return {fault: measure(fault, runs) for fault in PERTURBATIONS}


def measure(fault: str, runs: int) -> Counter[PerturbationOutcome]:
    """Perturb in `runs` runs that are not moot, and serve the same runs without a perturbation.

    If nearly all are moot, there are fewer.
    """
    outcomes = Counter[PerturbationOutcome]()
    for seed in range(runs * MOST_SEEDS):
        if outcomes.total() - outcomes[PerturbationOutcome.MOOT] - outcomes[PerturbationOutcome.FALSE_ALARM] == runs:
            break
        log = log_with(fault, seed)
        outcome = _outcome(run_log(log))
        outcomes[outcome] += 1
        if outcome != PerturbationOutcome.MOOT:
            healthy = [op for op in log.ops if not isinstance(op, Inject)]
            outcomes[PerturbationOutcome.FALSE_ALARM] += run_log(OpLog(log.header, healthy)).failure is not None
    return outcomes


def log_with(fault: str, seed: int) -> OpLog:
    """The log of a run in which a perturbation of this kind is made."""
    chance, is_pair = Random(seed), fault == SENT
    configs = [CONFIG.for_side(role) for role in SIDES] if is_pair else [CONFIG]
    header = Header(
        engine=OWN,
        machine=PERTURBED_PAIR if is_pair else PERTURBED,
        configs=[config.to_mapping() for config in configs],
        seed=seed,
        model=MODEL if seed % 2 and not is_pair else "",
    )
    ops: list[Op] = []
    num_healthy = chance.randint(*HEALTHY_STEPS)
    for step in range(num_healthy + MOST_STEPS):
        if step == num_healthy:
            ops.append(Inject(engine=len(configs) - 1, fault=fault))
        if chance.random() < SUBMISSIONS:
            start = chance.randrange(FAMILIES)
            prompt = (*range(start, start + chance.randint(6, 30)), 60 + chance.randrange(8))
            ops.append(Submit(tokens=prompt, max_new_tokens=chance.randint(3, 12)))
        ops += [Step(engine=engine) for engine in range(len(configs))]
    return OpLog(header, ops)


def _outcome(driver: Driver) -> PerturbationOutcome:
    if driver.failure is not None:
        match driver.failure.error:
            case Misattributed():
                return PerturbationOutcome.MISATTRIBUTED
            case Unnoticed():
                return PerturbationOutcome.LATE
        raise RuntimeError(f"a perturbed run failed otherwise: {driver.failure.fingerprint}")
    systems = [system for system in driver.systems if isinstance(system, PerturbedSystem)]
    if any(system.is_over for system in systems):
        return PerturbationOutcome.NOTICED
    return (
        PerturbationOutcome.MISSED
        if any(system.watch.open is not None for system in systems)
        else PerturbationOutcome.MOOT
    )
