"""Operations whose outcome is not the one that a naive model predicts."""

from swarden.invariants.contracts.naive_model import NaiveModelCode, part_matches_its_model
from swarden.invariants.events import Modelled
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during, healthy

AGREED = Modelled("match", (8, [1, 2]), (8, [1, 2]))

CASES = [
    healthy(part_matches_its_model, during(AGREED)),
    broken(
        part_matches_its_model,
        "outcome-differs",
        during(AGREED, Modelled("swa: free after take", (4, 3), (3, 4))),
        found(Ref("swa: free after take"), NaiveModelCode.DIFFERS, expected=(4, 3), got=(3, 4)),
    ),
]
