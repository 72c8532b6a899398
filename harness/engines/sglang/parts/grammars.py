"""Structured output: requests with a grammar, by whose bitmask the model samples.

Real: from 0.5.17: `GrammarManager` with its queue, the cache of the backend, the delayed sample of the overlap loop,
the bitmasks of batches and of drafts, what results do with a grammar.
Stand-in: the backend's grammars, of so many tokens, which allow every second one; the end of a compilation; a clock.
Shows: tokens that no grammar allows, grammars ahead of or behind their answers, requests parked for ever.
"""

import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, Self

import swarden.invariants.events as seen
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart
from swarden.harness.engines.sglang.parts.pair import Side
from swarden.harness.engines.sglang.parts.ranks import RankGroup
from swarden.harness.engines.sglang.requests import SglangRequest, is_rejected
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.grammars import FAILS, FAULTS, LATE, ClientGrammar
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs
from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.events import FinishReason
from swarden.invariants.view import Snapshot

WORD = 32  # bits of a bitmask in one number
MOST_POLLS = 4  # after which a compilation takes too long; 10,000 in the releases


class Grammars(SglangCapability, frozen=True):
    """With `grammars` some requests have structured output."""

    grammars: Annotated[bool, Drawn((False, False, True)), IfReleaseHas("grammars")] = False

    needs = (Needs("grammars", off(Side, RankGroup)),)
    server_need = "structured output"
    events = (seen.GrammarRefused,)

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        """A request waits for its grammar, too."""
        return "waiting_requests_take_free_places", "waiting_requests_are_not_passed_over"

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        kind = release.code("GrammarManager")
        PollClock().serve([sys.modules[kind.__module__]])
        scheduler.dp_tp_group = SimpleNamespace(world_size=1, first_rank=0, is_first_rank=True)
        scheduler.grammar_manager = kind(scheduler)
        scheduler.grammar_manager.SGLANG_GRAMMAR_MAX_POLL_ITERATIONS = MOST_POLLS

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        return [SglangGrammars(engine)]


class PollClock(EngineClock):
    """A clock by which the manager looks once at its queue in each step."""

    def sleep(self, duration_s: float) -> None:
        self.now_s += 1


class BackendGrammar(ClientGrammar):
    """The methods of a BaseGrammarObject; a row of a bitmask has a bit for each token."""

    def accept_token(self, token: int) -> None:
        if not self.accept([token]):
            raise ValueError(f"token {token} is not allowed after {len(self.accepted)} tokens")

    def copy(self) -> Self:
        return type(self)(self.length, self._refused)

    @staticmethod
    def move_vocab_mask(vocab_mask: Any, device: Any) -> Any:
        return vocab_mask

    def fill_vocab_mask(self, vocab_mask: Any, idx: int) -> None:
        bits = sum([1 << token for token in self.allowed])
        vocab_mask[idx] = vocab_mask.new_tensor(array("i", bits.to_bytes(VOCABULARY // 8, "little")).tolist())

    @staticmethod
    def apply_vocab_mask(logits: Any, vocab_mask: Any) -> None:
        for row, words in zip(logits, vocab_mask.tolist(), strict=True):
            bits = int.from_bytes(array("i", words).tobytes(), "little")
            row[[token for token in range(VOCABULARY) if not bits >> token & 1]] = float("-inf")


class SglangGrammars(SglangPart):
    """The grammars of a scheduler, whose manager calls it as an executor.

    A compilation begins at once, and ends within the step unless it is late.
    """

    def __init__(self, engine: SglangEngine) -> None:
        release, self._engine, manager = engine.release, engine, engine.scheduler.grammar_manager
        self._tree, self._masked = release.code("GrammarTree"), release.code("build_grammar_vocab_mask")
        row = release.torch.full((1, VOCABULARY // WORD), -1, dtype=release.torch.int32)
        methods = {"allocate_vocab_mask": lambda _, vocab_size, batch_size, device: row.repeat(batch_size, 1)}
        kind = type("ReleasedGrammar", (BackendGrammar, release.code("BaseGrammarObject")), methods)
        self._compiling: list[tuple[Future[Any], Callable[[], Any]]] = []
        manager.grammar_backend = backend = release.code("BaseGrammarBackend")()
        backend.executor, backend.dispatch_ebnf = self, lambda length: kind(int(length), self._refused)
        engine.has_grammars = True
        engine.scheduler.launch_batch_sample_if_needed = self._sample_late
        intercept(manager, "get_ready_grammar_requests", self._ready)
        intercept(engine.forward, "sample", self._sample)
        intercept(engine.forward, "allowed", self._allowed)

    def submit(self, compile_grammar: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Called by the backend."""
        future = Future[Any]()
        future.set_running_or_notify_cancel()
        self._compiling.append((future, partial(compile_grammar, *args)))
        self.begin_step()
        return future

    def begin_step(self) -> None:
        """End the compilations that are not late."""
        compiling, self._compiling = self._compiling, []
        for future, compile_grammar in compiling:
            if self._engine.faults.fires(LATE):
                self._compiling.append((future, compile_grammar))
            elif self._engine.faults.fires(FAILS):
                future.set_exception(ValueError(FAULTS[FAILS]))
            else:
                future.set_result(compile_grammar())

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the number of tokens that each grammar has accepted."""
        accepted = {number: len(grammar.accepted) for number, grammar in self._grammars()}
        requests = [request._replace(num_accepted=accepted.get(request.id)) for request in snapshot.requests or ()]
        return replace(snapshot, requests=tuple(requests)) if accepted else snapshot

    def _grammars(self) -> Iterator[tuple[int, ClientGrammar]]:
        for number, request in self._engine.requests.live.items():
            if isinstance(request.req.grammar, ClientGrammar):
                yield number, request.req.grammar

    def _refused(self, grammar: ClientGrammar, token: int) -> None:
        number = next(number for number, of_request in self._grammars() if of_request is grammar)
        self._engine.log.notice(seen.GrammarRefused(number, token, len(grammar.accepted)))

    def _ready(self, original: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """End the requests that will not get a grammar; of each the release still computes a prompt of one token."""
        ready, requests = original(), self._engine.requests
        for req in ready:
            if is_rejected(req) and not req.swarden.is_hidden:
                request = requests.live.pop(req.swarden.id)
                is_aborted = "AbortReq" in req.to_finish.message
                requests.drop(request.id, FinishReason.ABORT if is_aborted else FinishReason.ERROR)
                requests.add(SglangRequest(requests.next_id(), req, request.namespace, is_hidden=True))
        return ready

    def _sample(self, original: Callable[..., None], batch: Any, result: Any, reads: Any, _: Any) -> None:
        """Sample by the bitmask of the batch; in the overlap loop, once the results before have been processed."""
        info = batch.sampling_info.copy_for_forward()
        info.grammars = [req.grammar for req in batch.reqs] if batch.has_grammar else None  # as ForwardBatch.init_new

        def sample() -> None:
            info.update_regex_vocab_mask()
            original(batch, result, reads, self._allowed_by(info.grammar_mask, len(reads)))

        if info.grammars and self._engine.config.overlap and not self._engine.config.drafts.is_on:
            result.swarden_sample = sample
        else:
            sample()

    def _sample_late(self, result: Any, batch: Any) -> None:
        if result is not None and result.swarden_sample is not None:
            result.swarden_sample()

    def _allowed(self, original: Callable[..., Any], batch: Any, drafts: Any) -> Any:
        """By the bitmask of a chain of drafts, as NGRAMWorker."""
        if not batch.has_grammar:
            return original(batch, drafts)
        number, count = drafts.shape
        links = self._engine.release.torch.arange(1, count + 1).repeat(number, 1)
        links[:, -1] = -1
        tree = self._tree.from_host(links, links * 0 - 1, drafts)
        info = batch.sampling_info.copy_for_forward()
        mask = self._masked(reqs=batch.reqs, tree=tree, sampling_info=info, device="cpu", barrier=None)
        allowed = self._allowed_by(mask, number * count)
        return [allowed[index : index + count] for index in range(0, number * count, count)]

    def _allowed_by(self, mask: Any, num_rows: int) -> Sequence[Sequence[int]]:
        """The tokens that each row of a bitmask allows."""
        logits = self._engine.release.torch.zeros((num_rows, VOCABULARY))
        if mask is not None:
            mask.apply(logits)
        return [row.isfinite().nonzero().flatten().tolist() for row in logits]
