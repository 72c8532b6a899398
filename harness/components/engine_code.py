"""The code of our engine, in which each event and each error has its origin, and its stand-ins for a model."""

from harness.core.origins import EngineCode

CODE = EngineCode(
    "engine_under_test",
    "engine_under_test.pools",
    frozenset({"_report_presence", "_notice"}),
    ("fakes.forward", "fakes.proposer", "fakes.unsteady"),
)
