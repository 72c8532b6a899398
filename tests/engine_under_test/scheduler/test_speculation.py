"""Decodes with drafts: computation, verification, and the KV of rejected drafts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from swarden.engine_under_test.errors import ConfigError, EngineError
from swarden.engine_under_test.ports import Wanted
from swarden.invariants.events import Proposed, Verified
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED
from tests.engine_under_test.scheduler.speculative_serving import SpeculativeServing

PROMPT = list(range(100, 117))
DRAFTING: dict[str, Any] = {"lookahead_tokens": 3, "draft_tokens": 3}
CONFIGS = {
    "hybrid": replace(HYBRID, **DRAFTING),
    "full only": replace(FULL_ONLY, **DRAFTING),
    "swa only": replace(SWA_ONLY, **DRAFTING),
    "no sharing": replace(UNSHARED, **DRAFTING),
    "overlapped": replace(HYBRID, overlap=True, **DRAFTING),
    "mixed": replace(HYBRID, mixed_batches=True, chunk_len=5, **DRAFTING),
    "overlapped and mixed": replace(HYBRID, overlap=True, mixed_batches=True, chunk_len=5, **DRAFTING),
    "longer lookahead": replace(HYBRID, lookahead_tokens=6, draft_tokens=2),
}


class FixedProposer:
    """Proposes the same drafts for any tokens, and more than are wanted."""

    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [[5] * 9 for _ in wanted]

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


class EmptyProposer(FixedProposer):
    """Returns no drafts, not even an empty list per request."""

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return []


def test_accepted_drafts_save_passes():
    serving = SpeculativeServing(CONFIGS["hybrid"], (3,))

    serving.serve(PROMPT[:9], max_new_tokens=9)

    assert len(serving.passes) == 3
    assert [verified.num_accepted for verified in serving.log.of(Verified)] == [3, 3]


def test_excess_drafts_are_not_computed():
    serving = SpeculativeServing(CONFIGS["hybrid"], proposer=FixedProposer())

    serving.serve(PROMPT[:9], max_new_tokens=3)

    assert [len(proposed.drafts) for proposed in serving.log.of(Proposed)] == [3, 3]


def test_proposer_forgets_ended_requests():
    proposer = FixedProposer()

    SpeculativeServing(CONFIGS["hybrid"], proposer=proposer).serve(PROMPT, max_new_tokens=3)

    assert proposer.forgotten == [1]


def test_missing_drafts_of_a_proposer_raise_an_error():
    serving = SpeculativeServing(CONFIGS["hybrid"], proposer=EmptyProposer())
    serving.submit(PROMPT, max_new_tokens=3)

    with pytest.raises(EngineError, match="the proposer returned 0 drafts for 1 requests"):
        serving.run()


def test_proposer_without_draft_tokens_is_refused():
    with pytest.raises(ConfigError, match="draft_tokens: 0, and a proposer is given"):
        SpeculativeServing(HYBRID, (3,))
