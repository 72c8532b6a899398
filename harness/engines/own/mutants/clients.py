"""Bugs by which a client gets a longer or a shorter output than requested."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

bug(
    "S100",
    "made here: an abort is accepted and has no effect",
    at="swarden.engine_under_test.engine:Engine.abort",
    healthy="if request is not None and request.finish_reason is None:",
    broken="if False:",
    caught_by=("aborted_requests_are_released", "aborted_requests_stop_decoding"),
)

bug(
    "S101",
    "made here: a stop token is sampled, and the request continues",
    at="swarden.engine_under_test.request:Request.receive",
    healthy="if token in self.sampling.stop_token_ids:",
    broken="if False:",
    caught_by=("outputs_end_as_asked",),
)

bug(
    "S241",
    "a request that is aborted while it waits is reported as stopped: its client takes an empty answer for a whole one",
    at="swarden.engine_under_test.engine:Engine.abort",
    healthy="Ending(events.FinishReason.ABORT)",
    broken="Ending(events.FinishReason.STOP if request in self.scheduler.waiting else events.FinishReason.ABORT)",
    caught_by=("outputs_end_as_asked",),
)

bug(
    "S242",
    "a request that times out is reported as aborted by its client",
    at="swarden.engine_under_test.scheduler.scheduler:Scheduler._expire",
    healthy="Ending(FinishReason.TIMEOUT)",
    broken="Ending(FinishReason.ABORT)",
    caught_by=("outputs_end_as_asked",),
)
