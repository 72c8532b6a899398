"""Structured output: requests with a grammar, by whose bitmask the model samples.

Real: the manager of grammars, the wait for a grammar, checked drafts, the bitmask and the rows of the runner.
Stand-in: the backend: a grammar of so many tokens, of which it allows every second one; the end of a compilation.
Shows: tokens that no grammar allows, grammars ahead of or behind their answers, requests parked for ever.

The rows of the bitmask are those of `apply_grammar_bitmask`, of the first model runner; the second one has the same
rows, and also refuses the drafts from `num_acceptable_drafts` on, in releases that have them.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Annotated, Any

import swarden.invariants.events as seen
from swarden.harness.core.port import Submission
from swarden.harness.engines.vllm.parts.drafts import NGRAM
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.parts.ranks import RankGroup
from swarden.harness.engines.vllm.passes import UNKNOWN, AnswerGrammar, VllmPass
from swarden.harness.kit.calls import intercept, replaced
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs
from swarden.harness.kit.tags import ALL_TOKENS, VOCABULARY
from swarden.invariants.grammar import allowed_tokens, has_ended
from swarden.invariants.view import Snapshot

GRAMMAR = "grammar"  # the option of a request
FAILS, LATE = "grammar.fails", "grammar.late"
FAULTS = {
    FAILS: "a grammar cannot be compiled",
    LATE: "a grammar that is compiled takes a step more",
}
WORD_LEN = 32  # tokens in a word of a bitmask
WORD = (1 << WORD_LEN) - 1


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


class ClientGrammar:
    """The methods of a StructuredOutputGrammar: tokens behind its end are ignored, as by the release's backends."""

    def __init__(self, length: int, refused: Callable[[int, int], None]) -> None:
        self.length, self._refused = length, refused
        self.accepted: list[int] = []

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        for token in tokens:
            if self.is_terminated():
                break
            if token not in allowed_tokens(self.length, self.accepted, VOCABULARY):
                self._refused(token, len(self.accepted))
                return False
            self.accepted.append(token)
        return True

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        outputs = list(self.accepted)
        for token in tokens:
            if has_ended(self.length, outputs) or token not in allowed_tokens(self.length, outputs, VOCABULARY):
                break
            outputs.append(token)
        return outputs[len(self.accepted) :]

    def rollback(self, num_tokens: int) -> None:
        if num_tokens > len(self.accepted):
            raise ValueError(f"{num_tokens} tokens are rolled back, {len(self.accepted)} are accepted")
        del self.accepted[len(self.accepted) - num_tokens :]

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        bits = sum([1 << token for token in allowed_tokens(self.length, self.accepted, VOCABULARY)])
        for index in range(VOCABULARY // WORD_LEN):
            word = bits >> index * WORD_LEN & WORD
            bitmask[batch_index, index] = word - (word >> WORD_LEN - 1 << WORD_LEN)  # as a signed number

    def is_terminated(self) -> bool:
        return has_ended(self.length, self.accepted)

    def reset(self) -> None:
        self.accepted.clear()


class VllmGrammars(Part):
    """The grammars of an engine core; the release's manager calls it as an executor and as a backend.

    A compilation begins at once, and ends within the step unless it is late.  `_outputs` are the bitmasks of passes in
    flight.
    """

    def __init__(self, engine: VllmEngine) -> None:
        release, config, self._engine = engine.runner.release, engine.config, engine
        self._torch, self._apply = release.torch, release.code("apply_grammar_bitmask")
        self._kind = type("ReleasedGrammar", (ClientGrammar, release.code("StructuredOutputGrammar")), {})
        self._compiling: list[tuple[Future[Any], Callable[[Any], int], Any]] = []
        self._outputs: dict[VllmPass, Any] = {}
        self._computed: Collection[int] = ()  # the requests of the last pass
        self._device, self._manager = engine.runner.device, engine.built.scheduler.structured_output_manager
        self._manager.executor = self._manager.backend = self
        engine.has_grammars = True
        intercept(engine, "submit", self._submit)
        intercept(engine, "admit", self._admit)
        intercept(engine.runner, "sample_tokens", self._sample)
        intercept(self._device, "compute", self._compute)
        if config.drafts.drafter == NGRAM:
            intercept(self._device.script, "next", lambda original: original() or None)  # nothing matches

    # The methods that the manager calls.

    def submit(self, create: Callable[[Any], int], req: Any) -> "Future[Any]":
        future = Future[Any]()
        self._compiling.append((future, create, req))
        self.begin_step()
        return future

    def compile_grammar(self, request_type: Any, grammar_spec: str, stop_token_ids: Any = None) -> int:
        if self._engine.faults.fires(FAILS):
            raise ValueError(FAULTS[FAILS])
        return int(grammar_spec)

    def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
        return self._torch.full((max_num_seqs, VOCABULARY // WORD_LEN), -1, dtype=self._torch.int32)

    # The part.

    def begin_step(self) -> None:
        """End the compilations that are not late."""
        compiling, self._compiling = self._compiling, []
        for future, create, req in compiling:
            if self._engine.faults.fires(LATE):
                self._compiling.append((future, create, req))
                continue
            try:
                length = create(req)
            except ValueError as error:
                future.set_exception(error)
            else:
                refused = partial(self._refused, self._engine.number_of(req.request_id))
                future.set_result(self._kind(length, refused))

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the number of tokens that each grammar has accepted."""
        structured = {
            number: request.req.structured_output_request
            for number, request in self._engine.requests.live.items()
            if request.req.use_structured_output
        }
        grammars = {number: one.grammar for number, one in structured.items()}
        accepted = {number: len(one.accepted) for number, one in grammars.items() if isinstance(one, ClientGrammar)}
        if not accepted:
            return snapshot
        requests = [one._replace(num_accepted=accepted.get(one.id)) for one in snapshot.requests or ()]
        return replace(snapshot, requests=tuple(requests))

    def _submit(self, original: Callable[[Submission], int], submission: Submission) -> int:
        number = original(submission)
        if submission.grammar:
            self._device.grammars[number] = AnswerGrammar(submission.grammar, len(submission.tokens))
        return number

    def _admit(self, original: Callable[[Any], None], req: Any) -> None:
        """As `preprocess_add_request` of the core."""
        self._manager.grammar_init(req)
        original(req)

    def _refused(self, number: int, token: int, num_accepted: int) -> None:
        self._engine.log.notice(seen.GrammarRefused(number, token, num_accepted))

    def _sample(self, original: Callable[..., Any], output: Any, **kwargs: Any) -> Any:
        """Keep the output, of which the release fills the bitmask again in the next step."""
        if output is not None:
            self._outputs[self._engine.runner.in_flight[-1]] = deepcopy(output)
        return original(output, **kwargs)

    def _compute(self, original: Callable[[VllmPass], Any], one: VllmPass) -> Any:
        output = self._outputs.pop(one, None)
        self._device.allowed = {} if output is None else self._allowed(one, output)
        self._computed = {entry.request for entry in one.entries}  # an empty pass, too: the batch loses the others
        return original(one)

    def _allowed(self, one: VllmPass, output: Any) -> Mapping[int, Sequence[Sequence[int]]]:
        """By request, the tokens that a bitmask allows at its last position, and behind each draft."""
        config, pairs = self._engine.config, zip(one.rids, one.entries, strict=True)
        drafts = {rid: entry.drafts for rid, entry in pairs}
        if config.drafts.drafter == NGRAM and not config.second_runner:  # this runner trims what is not proposed
            drafts = {rid: [draft for draft in of_rid if draft != UNKNOWN] for rid, of_rid in drafts.items()}
        logits = self._torch.zeros((len(drafts) + sum(map(len, drafts.values())), VOCABULARY))
        scheduled = {rid: of_rid for rid, of_rid in drafts.items() if of_rid}
        xgrammar, batch = SimpleNamespace(apply_token_bitmask_inplace=masked), SimpleNamespace(req_ids=list(drafts))
        with replaced(sys.modules[self._apply.__module__], "xgr", xgrammar):
            self._apply(SimpleNamespace(scheduled_spec_decode_tokens=scheduled), output, batch, logits)
        rows = iter([row.isfinite().nonzero().flatten().tolist() for row in logits])
        allowed = {rid: [*islice(rows, 1 + len(of_rid))] for rid, of_rid in drafts.items()}
        for rid, most in self._most_drafts(output).items():
            del allowed[rid][1 + most :]
        return {self._engine.number_of(rid): of_rid for rid, of_rid in allowed.items()}

    def _most_drafts(self, output: Any) -> Mapping[str, int]:
        """The drafts of requests that the runner can accept at most, where it knows a limit.

        The first runner has lost those of a request that was not in the pass before; the second one is told a limit.
        """
        config, rids = self._engine.config, output.structured_output_request_ids
        if config.second_runner and hasattr(output, "num_acceptable_drafts"):
            return dict(zip(rids, output.num_acceptable_drafts, strict=True))
        is_lossy = config.asynchronous and not config.second_runner
        return {rid: 0 for rid in rids if is_lossy and self._engine.number_of(rid) not in self._computed}


def masked(logits: Any, bitmask: Any, indices: Sequence[int] | None = None) -> None:
    """As xgrammar: the logits of these rows, or of all, whose bit is not set become -inf."""
    for row in range(len(logits)) if indices is None else indices:
        words = [int(word) & WORD for word in bitmask[row]]
        unset = [token for token in ALL_TOKENS if not words[token // WORD_LEN] >> token % WORD_LEN & 1]
        logits[row, unset] = float("-inf")
