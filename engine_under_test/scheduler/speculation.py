"""Guesses before a decode, and what of them counts when the model has said what it would."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from engine_under_test.config import EngineConfig
from engine_under_test.errors import EngineError
from engine_under_test.events import Verified
from engine_under_test.ports import Computed, Ports, Proposer, Wanted
from engine_under_test.request import Request
from engine_under_test.scheduler.batch import Entry
from engine_under_test.speculative.ngram import NgramProposer
from engine_under_test.speculative.verify import num_accepted


class Speculation:
    """Draft and verify: `most` draft tokens are computed behind the newest token of who decodes, and judged at once.

    A guess goes on from a token that is known, so who decodes waits for the result of its last pass.  Where nobody
    guesses, 0 of `most`, it need not.
    """

    def __init__(self, config: EngineConfig, ports: Ports) -> None:
        self.most = config.draft_tokens
        assert ports.forward is not None, "an engine has a forward, its own or a given one"
        self._vocab_size = ports.forward.vocab_size
        self._proposer: Proposer = ports.proposer or NgramProposer()
        self._observer = ports.observer

    def guess(self, entries: Sequence[Entry]) -> list[Entry]:
        """The same decodes, with the drafts that somebody has for them; they may go beyond what was asked for."""
        if not self.most or not entries:
            return list(entries)
        requests = [entry.request for entry in entries]
        wanted = [Wanted(one.id, one.namespace, one.tokens, self.most) for one in requests]
        proposed = self._proposer.propose(wanted)
        if len(proposed) != len(wanted):
            raise EngineError(f"the proposer has {len(proposed)} guesses for {len(wanted)} requests")
        return [
            replace(entry, drafts=tuple(self._known(drafts[: self.most])))
            for entry, drafts in zip(entries, proposed, strict=True)
        ]

    def judge(self, launch: int, entry: Entry, computed: Computed) -> Computed:
        """What counts of a result: what the model said up to the first draft that it would not have said."""
        if not entry.drafts or not computed.tokens:
            return computed
        accepted = num_accepted(entry.drafts, computed.tokens)
        if self._observer:
            self._observer.notice(Verified(launch, entry.request.id, accepted, tuple(computed.tokens)))
        logits = computed.logits
        if logits is not None:
            logits = logits._replace(values=logits.values[: entry.end + accepted - logits.start])
        return Computed(computed.tokens[: accepted + 1], logits)

    def _known(self, drafts: Sequence[int]) -> Iterator[int]:
        """Up to the first that is no token of the model that judges: who guesses may know more."""
        size = self._vocab_size
        return takewhile(lambda token: token >= 0 and (size is None or token < size), drafts)

    def forget(self, request: Request) -> None:
        """A request has ended."""
        self._proposer.forget(request.id)
