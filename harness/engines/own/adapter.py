"""The adapter of our own engine: its port for the harness, and its fakes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import swarden.invariants.events as seen
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import FrameDamaged, FrameReader, Seal, encode
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.messages import Message
from swarden.engine_under_test.model.runner import ModelForward
from swarden.engine_under_test.ports import Forward, Link, Ports, Wanted
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import common_len
from swarden.fakes.backing import FakeBacking
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.fakes.host import UnsteadyHostStore
from swarden.fakes.link import UnsteadyLink
from swarden.fakes.proposer import ScriptedProposer
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import DraftPort, EnginePort, SessionPort, Streamed, Submission
from swarden.harness.engines.own.capture import EngineCapture, awaits_another
from swarden.harness.engines.own.compared_forward import ComparedForward
from swarden.harness.engines.own.copies import CopyInspector
from swarden.harness.engines.own.faults import BETWEEN_ENGINES, FAULTS
from swarden.harness.engines.own.mail import Mail
from swarden.harness.engines.own.models import tiny_model
from swarden.harness.engines.own.neighbour import Neighbour
from swarden.harness.engines.own.router import OF_ROUTERS, OwnRouter
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.tags import VOCABULARY, TagModel
from swarden.invariants import reference, view
from swarden.invariants.limits import DECODE

# Comparisons of memory, which only the level content of the strict check and workers of other engines report.
NEVER_SENT = (seen.BlocksCleared, seen.CacheReset, seen.GrammarRefused, seen.PrefetchSized)  # of other engines
OF_CONTENT = frozenset({seen.BytesCompared.__name__, seen.KVCompared.__name__, seen.Received.__name__})
CODE = EngineCode(  # in which each event and each error has its origin, and its stand-ins for a model
    "swarden.engine_under_test",
    "swarden.engine_under_test.pools",
    frozenset({"_report_presence", "_notice"}),
    ("swarden.fakes.forward", "swarden.fakes.proposer", "swarden.fakes.unsteady"),
    tuple(
        f"swarden.engine_under_test.scheduler.{function}"
        for function in (
            "admission.Admission.plan_chunk",
            "admission.Admission.plan_new",
            "scheduler.Scheduler._plan_chunk",
            "scheduler.Scheduler._plan_waiting",
        )
    ),
)


class Oracle:
    """Continues the tokens of a request as the fake model does, and caches the continuation."""

    def __init__(self, windows: Sequence[int | None], vocabulary: int) -> None:
        self._windows = windows
        self._vocabulary = vocabulary
        self._known: dict[int, reference.Expectation] = {}

    def __call__(self, wanted: Wanted) -> list[int]:
        """The next `most` tokens."""
        known, tokens = self._known.get(wanted.request_id), list(wanted.tokens)
        if known is None:
            known = self._known[wanted.request_id] = reference.Expectation(wanted.namespace, len(tokens), list(tokens))
        elif known.tokens[: len(tokens)] != tokens:  # tokens that the model did not sample are not cached
            same = common_len(known.tokens, tokens)
            tags, sums = known.tags[:same], known.sums[: same + 1]
            known = reference.Expectation(wanted.namespace, len(tokens), list(tokens), tags=tags, sums=sums)
        while len(known.tokens) < len(tokens) + wanted.most:
            position = len(known.tokens)
            known.extend([known.next_token(position, windows=self._windows, vocabulary=self._vocabulary)])
        return known.tokens[len(tokens) : len(tokens) + wanted.most]

    def forget(self, request_id: int) -> None:
        self._known.pop(request_id, None)


def damaged(message: Message) -> Message | None:
    """The message decoded from a frame with one flipped bit; None if the receiver detects the damage."""
    frame = bytearray().join(encode(message, Seal(b"key")))
    frame[len(frame) // 2] ^= 1
    try:
        [received] = FrameReader(b"key", max_payload=len(frame)).feed(frame)
    except FrameDamaged:
        return None
    return received


class SwardenEngine(EnginePort):
    """Our engine behind EnginePort, on fakes, or with the tiny model named `model` instead of the fake forward.

    With a model, freed pages are poisoned: a model writes no tags that would reveal a read after free.  One side of a
    pair has an unreliable `link` to the other side; `mail` counts the messages of both.
    """

    def __init__(
        self, config: EngineConfig, model: str = "", link: Link | None = None, *, mail: Mail | None = None
    ) -> None:
        self.log = EventLog(code=CODE)
        self.drafts: DraftPort | None = None
        if model:
            config = replace(config, poison_freed_pages=True)
        known = [fault for fault in FAULTS if link is not None or fault not in BETWEEN_ENGINES]
        self.faults = FaultPlan(known, on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        self._clock = FakeClock()
        mail = Mail() if mail is None else mail
        self._compared = self._model_forward(config, model) if model else None
        steady: Forward = self._compared or FakeForward(TagModel(), note=self.log.notice)
        ports = Ports(
            UnsteadyForward(steady, self.faults),
            self._clock,
            self.log,
            FakeBacking(self.faults),
            UnsteadyHostStore(HostCopier(), self.faults),
            self._proposer(config) if config.draft_tokens and not model else None,
            UnsteadyLink(link, self.faults, damaged, mail.count) if link is not None else None,
        )
        self._engine = create_engine(config, ports=ports)
        if self._engine.memory.host is not None:
            inspector = CopyInspector(self._engine.memory, self.log.add)
            self.log.forward_to(inspector.notice, seen.CopyBegan, seen.CopyEnded)
        router = OwnRouter(config, self.log.add)
        self.log.forward_to(router.notice, *OF_ROUTERS)
        unreported = OF_CONTENT | names_of(seen.OF_SERVERS) | names_of(NEVER_SENT)
        is_delivered = mail.was_read if config.role == DECODE else mail.is_read
        self._capture = EngineCapture(self._engine, unreported, is_delivered, router)
        self.log.forward_to(self._capture.note, seen.Taken, seen.Paired)
        self._neighbour = Neighbour(self._engine.memory)
        self.pool_names: Sequence[str] = [pool.name for pool in config.pools]
        self.sessions: SessionPort | None = self._engine if link is None else None
        self.awaits_another = partial(awaits_another, self._engine)
        self._steps = 0

    @property
    def engine(self) -> Engine:
        """The engine itself, for callers that only read it."""
        return self._engine

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def reference(self) -> reference.Reference:
        """The reference. It predicts no outputs of a tiny model, because ComparedForward checks them."""
        windows = tuple(pool.window for pool in self._engine.config.pools)
        return reference.Reference(VOCABULARY if self._compared is None else 0, windows)

    def submit(self, submission: Submission) -> int:
        sampling = SamplingParams(submission.max_new_tokens, submission.stop)
        tokens, namespace, priority = submission.tokens, submission.namespace, submission.priority
        if submission.transfer_id:
            request_id = self._engine.submit_transfer(
                submission.transfer_id, tokens, sampling, namespace=namespace, priority=priority
            )
            assert request_id == submission.transfer_id, f"request {request_id} of transfer {submission.transfer_id}"
        else:
            request_id = self._engine.submit(
                tokens, sampling, namespace=namespace, priority=priority, session=submission.session
            )
        if self._compared is not None:
            self._compared.submitted(request_id, submission.tokens)
        return request_id

    def abort(self, request_id: int) -> None:
        self._engine.abort(request_id)

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        streamed = [Streamed._make(output[: len(Streamed._fields)]) for output in self._engine.step()]
        if self._compared is not None:
            for output in streamed:
                if output.finish_reason is not None:
                    self._compared.ended(output.request_id)
        return streamed

    def advance_clock(self, ms: int) -> bool:
        self._clock.advance(ms)
        return True

    def flush(self) -> bool:
        self._engine.flush()
        return True

    def pressure(self, pool: str, pages: int) -> bool:
        self._neighbour.hold(self.pool_names.index(pool), pages)
        return True

    def pause(self) -> bool:
        self._engine.pause()
        return True

    def resume(self) -> None:
        self._engine.resume()

    def capture(self) -> view.Snapshot:
        outside = {pool: self._neighbour.holdings(pool) for pool in self.pool_names}
        is_audit = self.log.begin_capture(self._capture.num_units)
        return self._capture.capture(step=self._steps, outside=outside, now_ms=self._clock.now_ms(), is_audit=is_audit)

    def _proposer(self, config: EngineConfig) -> ScriptedProposer:
        """A proposer whose number of right drafts is set by the op-log, also beyond the client's limit."""
        oracle = Oracle([pool.window for pool in config.pools], VOCABULARY)
        proposer = ScriptedProposer(oracle, oracle.forget)
        self.drafts = proposer.script
        return proposer

    def _model_forward(self, config: EngineConfig, name: str) -> ComparedForward:
        model = tiny_model(name, config)
        forward = ModelForward(model.decoder)
        return ComparedForward(forward, model.without_cache, self.log.notice)
