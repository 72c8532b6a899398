"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.contracts.chunk_budget import ChunkBudgetCode
from invariants.contracts.drafting import DraftingCode
from invariants.contracts.longest_match import LongestMatchCode
from invariants.contracts.model import ModelCode
from invariants.contracts.publishing import PublishingCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    ChunkBudgetCode.EMPTY: "computes nothing",
    ChunkBudgetCode.PREFILLS_TOO_MUCH: "prefills {count} tokens, at most {most} are allowed",
    ChunkBudgetCode.COMPUTES_TOO_MUCH: "prefills and computes {count} tokens, at most {most} are allowed",
    DraftingCode.NOT_BEHIND_ONE_TOKEN: "{count} drafts in launch {launch}, which computes [{start}, {end})",
    DraftingCode.RIGHT_DRAFT_REJECTED: "{accepted} of the drafts {drafts} are accepted, the model samples {sampled}",
    DraftingCode.VERDICT_NOT_AWAITED: (
        "launch {launch} computes [{start}, {end}), but the drafts of launch {drafted_in} are not judged"
    ),
    LongestMatchCode.TOO_SHORT: "matched {length} tokens, {usable} are usable",
    LongestMatchCode.WHOLE_KEY: "matched all {length} tokens, so none is left to compute",
    ModelCode.DIFFERS: "the model has {expected}, the engine {got}",
    PublishingCode.SHARES_OTHER_LEN: "published [0, {end}), but shares {protected_len} tokens",
    PublishingCode.NOT_MATCHED: "published [0, {end}), but only {length} of {want} tokens match",
}
