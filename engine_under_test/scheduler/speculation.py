"""Speculative decoding: draft tokens before a decode, and their verification after it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.ports import Computed, Ports, Proposer, Wanted
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.batch import Entry
from swarden.engine_under_test.speculative.ngram import NgramProposer
from swarden.engine_under_test.speculative.verify import num_accepted
from swarden.invariants.events import Verified


class Speculation:
    """Draft and verify: up to `most` draft tokens are computed behind the newest token of a decoding request.

    A draft continues a known token, so a decoding request waits for the result of its last pass.  Without drafts,
    `most` is 0, and the request does not wait.
    """

    def __init__(self, config: EngineConfig, ports: Ports) -> None:
        self.most = config.draft_tokens
        assert ports.forward is not None, "an engine has a forward, its own or a given one"
        self._vocab_size = ports.forward.vocab_size
        self._proposer: Proposer = ports.proposer or NgramProposer()
        self._observer = ports.observer

    def add_drafts(self, entries: Sequence[Entry]) -> list[Entry]:
        """The same decodes, with the drafts of the proposer; the drafts may exceed `max_new_tokens`."""
        if not self.most or not entries:
            return list(entries)
        requests = [entry.request for entry in entries]
        wanted = [Wanted(one.id, one.namespace, one.tokens, self.most) for one in requests]
        proposed = self._proposer.propose(wanted)
        if len(proposed) != len(wanted):
            raise EngineError(f"the proposer returned {len(proposed)} drafts for {len(wanted)} requests")
        return [
            replace(entry, drafts=tuple(self._known(drafts[: self.most])))
            for entry, drafts in zip(entries, proposed, strict=True)
        ]

    def verify(self, launch: int, entry: Entry, computed: Computed) -> Computed:
        """The accepted part of a result: the accepted drafts, and the token of the model behind them."""
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
        """The drafts up to the first one outside the model's vocabulary: a proposer may have a larger vocabulary."""
        size = self._vocab_size
        return takewhile(lambda token: token >= 0 and (size is None or token < size), drafts)

    def forget(self, request: Request) -> None:
        """Forget a request that has ended."""
        self._proposer.forget(request.id)
