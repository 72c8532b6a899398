"""The code of our engine, in which each event and each error has its origin, and its stand-ins for a model."""

from swarden.harness.core.origins import EngineCode

CODE = EngineCode(
    "swarden.engine_under_test",
    "swarden.engine_under_test.pools",
    frozenset({"_report_presence", "_notice"}),
    ("swarden.fakes.forward", "swarden.fakes.proposer", "swarden.fakes.unsteady"),
    tuple(
        f"swarden.engine_under_test.scheduler.{function}"
        for function in (
            "admission.Admission.plan_chunk",
            "admission.Admission.plan_new",
            "scheduler.Scheduler._plan_chunk",
            "scheduler.Scheduler._plan_waiting",
        )
    ),
)
