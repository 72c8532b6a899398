"""Structured output: requests with a grammar, by whose bitmask the model samples.

Real: the manager of grammars, the wait for a grammar, checked drafts, the bitmask and the rows of the runner.
Stand-in: the backend: a grammar of so many tokens, of which it allows every second one; the end of a compilation.
Shows: tokens that no grammar allows, grammars ahead of or behind their answers, requests parked for ever.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Annotated, Any
from unittest import mock

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.parts.drafts import NGRAM
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.parts.ranks import RankGroup
from swarden.harness.engines.vllm.passes import UNKNOWN, VllmPass
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.grammars import FAILS, FAULTS, LATE, ClientGrammar
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs
from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.view import Snapshot


class Grammars(VllmPart, frozen=True):
    """With `grammars` some requests have structured output."""

    grammars: Annotated[bool, Drawn((False, False, True)), IfReleaseHas("grammars")] = False

    needs = (Needs("grammars", off(Pairing, RankGroup)),)
    server_need = "structured output"
    waits = True
    events = (seen.GrammarRefused,)

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        return FAULTS

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        return [VllmGrammars(engine)]


class CoreGrammar(ClientGrammar):
    """The methods of a StructuredOutputGrammar."""

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        return self.accept(tokens)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        bitmask[batch_index] = 0
        bitmask[batch_index, list(self.allowed)] = -1


class VllmGrammars(Part):
    """The grammars of an engine core; the release's manager calls it as an executor and as a backend.

    A compilation begins at once, and ends within the step unless it is late.  `_outputs` are the bitmasks of passes in
    flight.
    """

    def __init__(self, engine: VllmEngine) -> None:
        release, self._engine = engine.runner.release, engine
        self._torch, self._apply = release.torch, release.code("apply_grammar_bitmask")
        self._kind = type("ReleasedGrammar", (CoreGrammar, release.code("StructuredOutputGrammar")), {})
        self._compiling: list[tuple[Future[Any], Callable[[Any], int], Any]] = []
        self._outputs: dict[VllmPass, Any] = {}
        self._computed: Collection[int] = ()  # the requests of the last pass
        self._device, manager = engine.runner.device, engine.built.scheduler.structured_output_manager
        manager.executor = manager.backend = self
        engine.has_grammars = engine.turns_have_grammars = True
        intercept(engine, "admit", lambda original, req: (manager.grammar_init(req), original(req)))  # as the core
        intercept(engine.runner, "sample_tokens", self._sample)
        intercept(self._device, "compute", self._compute)
        if engine.config.drafts.drafter == NGRAM:
            intercept(self._device.script, "next", lambda original: original() or None)  # nothing matches

    # The methods that the manager calls.

    def submit(self, create: Callable[[Any], int], req: Any) -> "Future[Any]":
        future = Future[Any]()
        self._compiling.append((future, create, req))
        self.begin_step()
        return future

    def compile_grammar(self, request_type: Any, grammar_spec: str, stop_token_ids: Any = None) -> int:
        return int(grammar_spec)

    def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
        return self._torch.full((max_num_seqs, VOCABULARY), -1, dtype=self._torch.int32)

    # The part.

    def begin_step(self) -> None:
        """End the compilations that are not late."""
        compiling, self._compiling = self._compiling, []
        for future, create, req in compiling:
            if self._engine.faults.fires(LATE):
                self._compiling.append((future, create, req))
            elif self._engine.faults.fires(FAILS):
                future.set_exception(ValueError(FAULTS[FAILS]))
            else:
                future.set_result(self._kind(create(req), partial(self._refused, req.request_id)))

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the number of tokens that each grammar has accepted."""
        accepted = dict(self._accepted())
        requests = [request._replace(num_accepted=accepted.get(request.id)) for request in snapshot.requests or ()]
        return replace(snapshot, requests=tuple(requests)) if accepted else snapshot

    def _accepted(self) -> Iterator[tuple[int, int]]:
        """The number of tokens, by request; that of a session has the grammar of the turn that has begun."""
        for number, request in self._engine.requests.live.items():
            structured = request.req.structured_output_request
            grammar = getattr(structured, "_grammar", None)  # the property `grammar` waits for one that is compiled
            if isinstance(grammar, ClientGrammar) and not request.queued:
                yield number, len(grammar.accepted)

    def _refused(self, rid: str, grammar: ClientGrammar, token: int) -> None:
        number = self._engine.number_of(rid)
        self._engine.log.notice(seen.GrammarRefused(number, token, len(grammar.accepted)))

    def _sample(self, original: Callable[..., Any], output: Any, **kwargs: Any) -> Any:
        """Keep the output, of which the release fills the bitmask again in the next step."""
        if output is not None:
            self._outputs[self._engine.runner.in_flight[-1]] = deepcopy(output)
        return original(output, **kwargs)

    def _compute(self, original: Callable[[VllmPass], Any], flight: VllmPass) -> Any:
        output = self._outputs.pop(flight, None)
        self._device.allowed = {} if output is None else self._allowed(flight, output)
        self._computed = {entry.request for entry in flight.entries}  # an empty pass, too: the batch loses the others
        return original(flight)

    def _allowed(self, flight: VllmPass, output: Any) -> Mapping[int, Sequence[Sequence[int]]]:
        """By request, the tokens that a bitmask allows at its last position, and behind each draft."""
        config, pairs = self._engine.config, zip(flight.rids, flight.entries, strict=True)
        drafts = {rid: entry.drafts for rid, entry in pairs}
        if config.drafts.drafter == NGRAM and not config.second_runner:  # this runner trims what is not proposed
            drafts = {rid: [draft for draft in of_rid if draft != UNKNOWN] for rid, of_rid in drafts.items()}
        logits = self._torch.zeros((len(drafts) + sum(map(len, drafts.values())), VOCABULARY))
        scheduled = {rid: of_rid for rid, of_rid in drafts.items() if of_rid}
        xgrammar, batch = SimpleNamespace(apply_token_bitmask_inplace=masked), SimpleNamespace(req_ids=list(drafts))
        in_its_module: dict[str, Any] = {"xgr": xgrammar, "PIN_MEMORY": False}
        with mock.patch.multiple(sys.modules[self._apply.__module__], create=True, **in_its_module):
            self._apply(SimpleNamespace(scheduled_spec_decode_tokens=scheduled), output, batch, logits)
        rows = iter([row.isfinite().nonzero().flatten().tolist() for row in logits])
        allowed = {rid: [*islice(rows, 1 + len(of_rid))] for rid, of_rid in drafts.items()}
        for rid, most in self._most_drafts(output).items():
            del allowed[rid][1 + most :]
        return {self._engine.number_of(rid): of_rid for rid, of_rid in allowed.items()}

    def _most_drafts(self, output: Any) -> Mapping[str, int]:
        """The drafts of requests that the runner can accept at most, where it knows a limit.

        The first runner has no drafts of a request that the previous pass did not schedule; the second gets a limit.
        """
        config, rids = self._engine.config, output.structured_output_request_ids
        if config.second_runner and hasattr(output, "num_acceptable_drafts"):
            return dict(zip(rids, output.num_acceptable_drafts, strict=True))
        is_lossy = config.asynchronous and not config.second_runner
        return {rid: 0 for rid in rids if is_lossy and self._engine.number_of(rid) not in self._computed}


def masked(logits: Any, bitmask: Any, indices: Sequence[int] | None = None) -> None:
    """As xgrammar, with a word for each token: the logits of these rows, or of all, become -inf where the word is 0."""
    rows = list(range(len(logits)) if indices is None else indices)
    logits[rows] = logits[rows].masked_fill(bitmask[rows] == 0, float("-inf"))
