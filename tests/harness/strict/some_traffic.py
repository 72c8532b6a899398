"""Traffic and engines for the tests of the strict check."""

from collections.abc import Callable, Sequence
from random import Random

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.core.ops import (
    Abort,
    AdvanceClock,
    CloseSession,
    Flush,
    Inject,
    Op,
    OpenSession,
    Pause,
    Pressure,
    Recipe,
    Resume,
    Step,
    Submit,
    Turn,
)
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.kit.tags import TagModel
from swarden.harness.strict.checker import StrictChecker, audit, census, content, sums

Kinds = dict[str, tuple[int, Callable[[Random], Op]]]  # weight and op
LEVELS: dict[str, Callable[..., StrictChecker]] = {"sums": sums, "audit": audit, "census": census, "content": content}
NUM_OPS = 120
FAULTS = ("forward.late", "forward.fails", "pool.refuses")


def some_config(**settings: object) -> EngineConfig:
    """Pools that are too small for the traffic, with `settings` instead of the defaults."""
    usual = EngineConfig(
        page_size=4,
        full_pages=20,
        swa_pages=10,
        sliding_window=6,
        max_running_requests=4,
        max_context_len=128,
        chunk_len=16,
    )
    return EngineConfig.from_mapping(usual.to_mapping() | settings)


CONFIGS = {
    "hybrid": some_config(),
    "full only": some_config(swa_pages=0, sliding_window=None),
    "swa only": some_config(full_pages=0),
    "no prefix sharing": some_config(prefix_sharing=False),
    "page above window": some_config(page_size=16, sliding_window=4, full_pages=16, swa_pages=8),
    "page of one token": some_config(page_size=1, full_pages=70, swa_pages=30),
    "oldest page first": some_config(page_reuse="fifo", waiting_order="lpm"),
    "overlapped": some_config(overlap=True),
    "overlapped and mixed": some_config(overlap=True, mixed_batches=True, chunk_len=6),
    "overlapped, swa only": some_config(overlap=True, full_pages=0, mixed_batches=True),
    "lookahead": some_config(overlap=True, lookahead_tokens=5, swa_pages=14),
    "preemption": some_config(overlap=True, preemption_threshold=0),
    "request timeout": some_config(request_timeout_ms=60),
    "session timeout": some_config(session_timeout_ms=40),
    "write-through": some_config(host_full_pages=40, host_swa_pages=20, load_back_threshold=1),
    "write-back": some_config(host_full_pages=12, host_swa_pages=6, host_policy="write_back", load_back_threshold=1),
    "states": some_config(state_pages=5),
    "states with checkpoints, overlapped": some_config(state_pages=8, state_interval=8, overlap=True),
    "states, write-back": some_config(
        state_pages=5,
        host_full_pages=12,
        host_swa_pages=6,
        host_state_pages=4,
        host_policy="write_back",
        load_back_threshold=1,
    ),
    "swa only, write-back": some_config(full_pages=0, host_swa_pages=8, host_policy="write_back"),
}


def traffic(seed: int, count: int = NUM_OPS) -> list[Op]:
    """Ops of all kinds, most of them submits and steps."""
    return _drawn(DRAWN, seed, count)


def talk(seed: int, count: int = NUM_OPS) -> list[Op]:
    """Ops of all kinds, with sessions among them."""
    return [OpenSession(), OpenSession(namespace=1), *_drawn(DRAWN | TALKED, seed, count)]


def _drawn(kinds: Kinds, seed: int, count: int) -> list[Op]:
    chance = Random(seed)
    names = chance.choices(tuple(kinds), weights=tuple(weight for weight, _ in kinds.values()), k=count)
    return [kinds[name][1](chance) for name in names]


def _submission(chance: Random) -> Op:
    path = tuple(chance.randrange(3) for _ in range(chance.randint(1, 8)))
    recipe = Recipe(path=path, cut=chance.randrange(4))
    return Submit(recipe=recipe, max_new_tokens=chance.randrange(20), priority=chance.randrange(3))


def _turn(chance: Random) -> Op:
    path = tuple(chance.randrange(3) for _ in range(chance.randint(1, 3)))
    rewind = chance.choice((0, 0, 0, 1, 5, 12))
    return Turn(
        session=chance.randrange(3), recipe=Recipe(path=path), rewind=rewind, max_new_tokens=chance.randrange(12)
    )


TALKED: Kinds = {
    "open_session": (4, lambda chance: OpenSession(namespace=chance.randrange(2))),
    "turn": (25, _turn),
    "submit": (6, _submission),  # few enough that sessions keep pages
    "step": (60, lambda chance: Step(count=chance.randint(2, 8))),
    "close_session": (2, lambda chance: CloseSession(session=chance.randrange(3))),
}
DRAWN: Kinds = {
    "submit": (30, _submission),
    "impossible": (4, lambda _: Submit(tokens=())),
    "step": (45, lambda chance: Step(count=chance.randint(1, 4))),
    "abort": (6, lambda chance: Abort(request=chance.randrange(6))),
    "pressure": (5, lambda chance: Pressure(pool=chance.randrange(2), pages=chance.randrange(4))),
    "flush": (2, lambda _: Flush()),
    "pause": (2, lambda _: Pause()),
    "resume": (4, lambda _: Resume()),
    "inject": (5, lambda chance: Inject(fault=chance.choice(FAULTS))),
    "advance_clock": (3, lambda _: AdvanceClock(ms=20)),
}


def served(config: EngineConfig, ops: Sequence[Op]) -> set[str]:
    """Apply the ops, finish, flush and step once more. Returns the names of the emitted events."""
    system = EngineSystem(SwardenEngine(config))
    emitted: set[str] = set()
    for op in ops:
        for _ in range(op.count if isinstance(op, Step) else 1):
            system.do(op)
            emitted |= {type(event).__name__ for event in system.take_events()}
    system.heal()
    for _ in range(system.drain_bound):
        if not system.has_work:
            break
        system.do(Step())
        system.take_events()
    assert not system.has_work, f"work is left after {system.drain_bound} steps"
    system.clear()
    system.do(Step())
    return emitted


class Watched:
    """A small engine with a strict checker as its observer."""

    def __init__(self, level: str, config: EngineConfig | None = None, *, reports: bool = False) -> None:
        self.clock = FakeClock()
        self.checker = LEVELS[level](reports=reports)
        ports = Ports(FakeForward(TagModel()), self.clock, self.checker)
        self.engine = Engine(config or some_config(), ports)
        self.checker.attach(self.engine)

    def submit(self, *tokens: int, max_new_tokens: int = 4) -> int:
        return self.engine.submit(tokens or range(12), SamplingParams(max_new_tokens))

    def serve(self) -> None:
        """Serve prompts sequentially; each extends the previous one."""
        for number in range(6):
            self.submit(*range(12 + number), max_new_tokens=12)
            self.step(8)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.step()
