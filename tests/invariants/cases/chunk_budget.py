"""Empty passes, and passes that compute more than their budget."""

from swarden.invariants.contracts.chunk_budget import (
    ChunkBudgetCode,
    mixed_passes_stay_within_chunk_len,
    passes_prefill_within_chunk_len,
)
from swarden.invariants.events import Launched
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during
from tests.invariants.cases.batches import ADMITTED, launched

LAUNCH = Ref("launch", 7)

CASES = [
    broken(
        passes_prefill_within_chunk_len,
        "too-many-tokens",
        launched((1, 0, 8), (2, 0, 5), (3, 4, 5)),
        found(LAUNCH, ChunkBudgetCode.PREFILLS_TOO_MUCH, count=13, most=8),
    ),
    broken(passes_prefill_within_chunk_len, "empty", launched(), found(LAUNCH, ChunkBudgetCode.EMPTY)),
    broken(
        mixed_passes_stay_within_chunk_len,
        "full-chunk-beside-a-decode",
        during(ADMITTED._replace(end=8), Launched(7, ((2, 0, 8), (1, 20, 21)))),
        found(LAUNCH, ChunkBudgetCode.COMPUTES_TOO_MUCH, count=9, most=8),
    ),
]
