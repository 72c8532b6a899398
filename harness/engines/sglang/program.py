"""A failing run of SGLang as the launch line of a server, and a client that sends the same requests."""

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Submit
from swarden.harness.core.port import Submission
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import driver_of
from swarden.harness.kit.calls import STEP, Call, Calls

SOURCE = Path(__file__).parent / "standalone/client.py"
SEEN = ("work_makes_progress/", "stuck/", "requests_are_in_one_queue/request/lost")  # requests without an answer
LAUNCH = "python -m sglang.launch_server --model-path MODEL --skip-tokenizer-init"


def program_of(log: OpLog, flags: Sequence[str]) -> Program:
    """The program that shows the failure of a log to a server started with these options.

    Raises NoProgram for a log that a client of one server cannot show, UsageError for one that does not fail.
    """
    header = log.header
    if len(header.configs) > 1 or header.mutant is not None or header.fixes:
        raise NoProgram("the op-log has a pair, a mutant or fixes, and the client has one server of a release")
    if any(isinstance(op, Submit) and op.sequences > 1 for op in log.ops):
        raise NoProgram("a request of the op-log has several sequences, and the client sends requests with one")
    driver, calls = driver_of(header), Calls()
    system: Any = driver.systems[0]
    for method, noted in (
        ("submit", partial(_submitted, system.port.sessions)),
        ("abort", lambda number: {"name": "abort", "number": number}),
        ("step", lambda: {"name": STEP}),
        ("flush", lambda: {"name": "flush"}),
        ("pause", lambda: {"name": "pause"}),
        ("resume", lambda: {"name": "resume"}),
    ):
        calls.record(system.port, method, noted)
    if system.port.sessions is not None:
        calls.record(system.port.sessions, "open_session", lambda namespace=0: {"name": "open_session"})
        calls.record(system.port.sessions, "close_session", lambda number: {"name": "close_session", "session": number})
    for op in log.ops:
        driver.apply(op)
    if driver.failure is None:
        here = f"{header.engine} {target_for(header).version()}"
        raise UsageError(f"the op-log does not fail on {here}; name another release")
    if not _is_seen(driver.failure):
        raise NoProgram(
            f"the op-log fails with {driver.failure.fingerprint}, and a client sees only requests without an answer "
            "and a dead server; write it --as issue"
        )
    return Program(SOURCE, {"LAUNCH": " ".join((LAUNCH, *flags))}, calls.in_order)


def _is_seen(failure: Failure) -> bool:
    return (failure.error is not None and bool(failure.frames)) or any(
        fingerprint.startswith(SEEN) for fingerprint in failure.fingerprints
    )


def _submitted(sessions: Any, submission: Submission) -> Call:
    """The call of a request.

    A turn has only the tokens that follow those of its session, and as `offset` the number of tokens that it keeps of
    them (None: all).
    """
    tokens, offset = list(submission.tokens), None
    if submission.session:
        history = sessions.history(submission.session)
        same = sum(takewhile(bool, (a == b for a, b in zip(history, tokens, strict=False))))
        offset = same if same < len(history) else None
        tokens = tokens[same:]
    further = {
        "stop_token_ids": list(submission.stop) or None,
        "priority": submission.priority or None,
        "extra_key": str(submission.namespace) if submission.namespace else None,
        "session": submission.session or None,
        "offset": offset,
    }
    return {
        "name": "generate",
        "input_ids": tokens,
        "max_new_tokens": submission.max_new_tokens,
        **{name: value for name, value in further.items() if value is not None},
    }
