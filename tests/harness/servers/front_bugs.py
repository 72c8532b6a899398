"""Bugs of our engine behind the front, most of which only the metrics and the capacity show from outside."""

from swarden.harness.core.mutant import Mutant, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

LOOP = "swarden.fakes.front.loop:EngineThread"

bug(
    "aborted-request-keeps-its-pages",
    "made here: an aborted request leaves the batch, and its pages, row and lock are not released",
    at="swarden.engine_under_test.scheduler.custody:Custody.release",
    healthy="record = self._records.pop(request.id)\n",
    broken='record = self._records.pop(request.id)\n    if cause == "abort":\n        return\n',
    caught_by=("server_is_empty_at_rest",),
)

bug(
    "aborted-request-is-counted",
    "made here: the gauge of waiting requests still counts a request whose client has gone",
    at=f"{LOOP}._step",
    healthy="if output.finish_reason is not None:",
    broken="if output.finish_reason not in (None, FinishReason.ABORT):",
    caught_by=("server_is_empty_at_rest",),
)

bug(
    "abort-shrinks-the-pool",
    "made here: a page of an aborted request is never free again, and no metric counts it",
    at="swarden.engine_under_test.pools.ledger:Ledger.free",
    healthy="    after = 0\n        self._free.extend(units)\n",
    broken='    after, lost = 0, len(units[:1]) if cause == "abort" and self.name != "rows" else 0\n'
    "        self.capacity -= lost\n        self._free.extend(units[lost:])\n",
    caught_by=("capacity_is_whole_at_rest",),
)

bug(
    "abort-leaks-a-state",
    "sglang pulls 12693, 16067 and 21404, in small: a page of states leaks when its request is aborted",
    at="swarden.engine_under_test.scheduler.custody:Custody.release",
    healthy="record = self._records.pop(request.id)\n",
    broken="record = self._records.pop(request.id)\n"
    "    states = self._memory.ledgers.ledgers[-1]\n"
    '    if cause == "abort" and states.num_free:\n        states.take(1, owner=record.owner)\n',
    caught_by=("server_is_empty_at_rest",),
)

bug(
    "dropped-copy-leaks-a-host-page",
    "S136, in small: of each copy on the host that is dropped, one page is never free again",
    at="swarden.engine_under_test.host.backups:Backups._drop",
    healthy="ledger.free(pages, owner=TREE, cause=FreeCause.DROPPED)",
    broken="ledger.free(pages[1:], owner=TREE, cause=FreeCause.DROPPED)",
    caught_by=("server_is_empty_at_rest",),
)

bug(
    "stop-string-is-ignored",
    "made here: the front does not look for the stop strings in an answer",
    at=f"{LOOP}.pieces",
    healthy="if served.has_stop_text:",
    broken="if False:",
    caught_by=("valid_requests_are_answered",),
)

bug(
    "sleep-keeps-the-cache",
    "lmdeploy's bug sleep-keeps-the-prefix-cache: KV is lost in a sleep, and prefixes stay in the cache",
    at=f"{LOOP}._sleep",
    healthy="self.engine.flush()",
    broken="pass",
    caught_by=("logits_match_uncached_model", "outputs_match_uncached_model"),
)


def front_bug(name: str) -> Mutant:
    [bug] = [mutant for mutant in MUTANTS.all if mutant.id == name]
    return bug
