"""Operations of which a naive model foretold something else."""

from invariants.events import Modelled
from invariants.model import the_model_agrees
from tests.invariants.builders import broken, during, healthy

AGREED = Modelled("match", (8, [1, 2]), (8, [1, 2]))

CASES = [
    healthy(the_model_agrees, during(AGREED)),
    broken(
        the_model_agrees,
        "another-outcome",
        during(AGREED, Modelled("swa: free after take", (4, 3), (3, 4))),
        ("swa: free after take", "the model has (4, 3), the engine (3, 4)"),
    ),
]
