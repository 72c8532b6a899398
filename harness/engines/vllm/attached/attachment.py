"""The strict check of one scheduler that a server has built."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.ops import Flush, Submit
from swarden.harness.engines.foreign.attached import attachment
from swarden.harness.engines.foreign.attached.attachment import numbering
from swarden.harness.engines.foreign.attached.follow import AttachSetting, UnknownScheduler
from swarden.harness.engines.foreign.attached.levels import AUDIT, SUMS, AttachedLevel
from swarden.harness.engines.vllm.attached.levels import Audit, Census, Sums
from swarden.harness.engines.vllm.attached.live import RequestNumbers, built_of, config_of, differences
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.requests import VllmRequest, VllmRequests
from swarden.invariants.events import FinishReason


class Numbers(NamedTuple):
    """The numbers of requests by their ids, and those of namespaces by what tells them apart."""

    requests: RequestNumbers
    namespaces: Callable[[Hashable], int]


class VllmAttachment(attachment.Attachment):
    """Follows the calls to a scheduler.

    A turn is a step of the engine core: a call of `schedule`, and of `update_from_output` unless the queue of batches
    is not full yet.
    """

    def __init__(self, release: VllmRelease, scheduler: Any, setting: AttachSetting) -> None:
        """Raises UnknownScheduler if the scheduler has parts that the check does not know."""
        self._numbers = Numbers(RequestNumbers(scheduler.requests), numbering())
        self._built = built_of(release, scheduler, self._numbers.requests)
        self._config = config_of(release, scheduler)
        super().__init__("vllm", release, self._config, lost=differences(scheduler), setting=setting)
        self._requests = VllmRequests(release, self._config, self._notice)
        self._num_in_flight = 0
        self._has_inputs = self._is_in_turn = False
        self._moves = None if setting.level == SUMS else Moves(self._built, self._notice, self._requests.owner)
        self._check = self._new_check(release, setting.level)

    def added(self, req: Any) -> None:
        """A request is about to enter the queue."""
        if req.resumable:
            raise UnknownScheduler(f"request {req.request_id} streams its input, which is not known")
        self._begin_input()
        number = self._numbers.requests.begin(req.request_id)
        namespace = self._numbers.namespaces(_salt(req))
        self._requests.live[number] = VllmRequest(number, req, namespace)
        if req.mm_features or req.prompt_token_ids is None:
            self._recorder.lose("requests with other inputs than tokens")
        else:
            op = Submit(
                tokens=tuple(req.prompt_token_ids),
                max_new_tokens=req.max_tokens,
                priority=-req.priority,
                namespace=namespace,
            )
            self._recorder.submitted(number, op)

    def finished(self) -> None:
        """Requests have been aborted, or ended by an error."""
        ended = [number for number, request in self._requests.live.items() if request.req.is_finished()]
        if ended and self._is_in_turn:
            self._recorder.lose("aborts while a pass was computed")
        elif ended:
            self._begin_input()
        for number in ended:
            self._recorder.aborted(number)
            self._requests.end(number, FinishReason.ABORT)

    def preempting(self, req: Any) -> None:
        self._notice(seen.Retracted(self._built.number_of(req.request_id), req.num_output_tokens, ()))

    def scheduling(self) -> None:
        """A turn begins."""
        if self._is_in_turn:
            self._end_turn()
        if self._has_inputs:
            self._has_inputs = False
            self._report(self._check.inputs_taken(self._take_events()))
        self._is_in_turn = True

    def scheduled(self, output: Any) -> None:
        """A pass is about to be launched; the turn ends if the queue of batches has a place for another one."""
        self._events += self._check.launched(output)
        self._settle()
        self._num_in_flight += 1
        if output.num_scheduled_tokens and self._num_in_flight < self._config.most_launches:
            self._end_turn()

    def completing(self) -> None:
        """The result of a pass is about to be processed."""
        self._is_in_turn = True
        self._num_in_flight -= 1
        self._events += self._check.completed()

    def updated(self, outputs: Mapping[int, Any]) -> None:
        for of_client in outputs.values():
            for output in of_client.outputs:
                self._requests.take(self._built.number_of(output.request_id), output)
        self._end_turn()

    def resetting(self, resets_running: bool) -> None:
        self._begin_input()
        if resets_running:
            if isinstance(self._check, Census):
                self._check.resetting()
            self._recorder.lose("resets that preempted the running requests")
        else:
            self._recorder.called(Flush())

    def reset(self, is_done: bool) -> None:
        """The cache was reset, unless a request has blocks; then the op-log begins anew if there is no request."""
        if self._moves is not None:
            self._moves.settle()
        if is_done and not self._requests:
            self._recorder.restart()

    def _new_check(self, release: VllmRelease, level: str) -> AttachedLevel:
        if self._moves is None:
            return Sums(self._built)
        if level == AUDIT:
            return Audit(self._built)
        return Census(release, self._built, self._requests, self._moves)

    def _begin_input(self) -> None:
        """A call of a client follows the turn before."""
        if self._is_in_turn:
            self._end_turn()
        self._has_inputs = True

    def _end_turn(self) -> None:
        self._is_in_turn = False
        ends = {one.request_id: one.finish_reason for one in self._requests.streamed() if one.finish_reason is not None}
        early = [
            number
            for number, reason in ends.items()
            if reason != FinishReason.LENGTH and not self._recorder.is_aborted(number)
        ]
        self._recorder.turn_ended(list(ends.keys() - early), early)
        self._report(self._check.turn_ended(self._take_events()))

    def _settle(self) -> None:
        if isinstance(self._check, Census) and self._moves is not None:
            self._moves.settle()

    def _take_events(self) -> Sequence[NamedTuple]:
        self._settle()
        return super()._take_events()


def _salt(req: Any) -> Hashable:
    """What tells the cached blocks of this request from those of the same tokens; None if nothing does."""
    salt = req.cache_salt, None if req.lora_request is None else req.lora_request.lora_name
    return salt if any(salt) else None
