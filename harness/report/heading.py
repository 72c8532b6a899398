"""The heading of a story: the engine, its configuration and the requests."""

from collections.abc import Collection, Iterator
from itertools import takewhile

from swarden.harness.core.changes import Changes, fix_of
from swarden.harness.core.driver import Failure
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, Step, Submit, name_of
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import ENGINE, simplified
from swarden.harness.report.event_text import op_text
from swarden.harness.report.wording import counted
from swarden.invariants.reference import Expectation, Reference

MAX_OPS = 12  # that a story lists
MAX_REQUESTS = 8  # of one engine that a story lists


def engine_name(header: Header, engine: int) -> str:
    """The name of an engine of the header, as in "engine 1 (decode)"; of a further rank with the number of the rank."""
    target = target_for(header)
    rank, engine = divmod(engine, len(header.configs))
    role = target.role(target.decode(header.configs[engine]))
    name = f"engine {engine} ({role})" if role else f"engine {engine}"
    return f"{name} rank {rank}" if rank else name


def opening_lines(header: Header, failed: int | None = None) -> list[str]:
    """The lines that name the engine, the engine that failed if there are several, and the planted bug and fixes."""
    target = target_for(header)
    named = f"engine: {target.name} {target.version()}"
    if header.machine != ENGINE:
        named += f", machine {header.machine}"
    if header.model:
        named += f", model {header.model}"
    if len(header.configs) > 1:
        named += f", {len(header.configs)} engines"
    if failed is not None and (len(header.configs) > 1 or failed >= len(header.configs)):
        named += f"; {engine_name(header, failed)} failed"
    return [named, *change_lines(header)]


def change_lines(header: Header) -> list[str]:
    """A line for each change of the code: the planted bug with its source, the fixes, and the changed functions.

    There is also a line for each fix that is not planted because this version does not have its bug.
    """
    target = target_for(header)
    needless = Changes(header.mutant, header.fixes).needless(target)
    fixes = [fix_of(target, name) for name in header.fixes if name not in needless]
    lines = [
        *(f"fix of a known bug: {fix.name} in {', '.join(fix.places)}" for fix in fixes),
        *(f"without the fix of {name}: {target.name} {target.version()} does not have this bug" for name in needless),
    ]
    if header.mutant is None:
        return lines
    mutant = mutant_of(target, header.mutant)
    return [f"mutant: {mutant.id} is planted in {', '.join(mutant.patch.places)} ({mutant.source})", *lines]


def failed_line(failure: Failure) -> str:
    """The op that failed, with its number in `swarden show`, and the last engine step."""
    name = f" ({name_of(failure.op)})" if failure.op is not None else ""
    return f"failed at op {failure.op_index + 1}{name}, after engine step {failure.transition.after.step}"


def configuration_line(header: Header, engine: int) -> str:
    """The settings of one engine that are not the default, and its main settings."""
    target = target_for(header)
    own, absent = target.encode(target.decode(header.configs[engine % len(header.configs)])), object()
    shown = [
        f"{name} {value}"
        for name, value in own.items()
        if name in target.main_settings or value != target.defaults.get(name, absent)
    ]
    return f"configuration: {', '.join(shown) or 'the default'}"


def needs_line(header: Header) -> str:
    """The settings of a log whose settings are shrunk: each that is not the default is needed; "" if none is."""
    several = len(header.configs) > 1
    needed = [
        f"{f'engine {engine}: ' if several else ''}{name} {value}"
        for engine, config in enumerate(header.configs)
        for name, value in config.items()
        if name in simplified(target_for(header)) and value != target_for(header).defaults[name]
    ]
    return f"needs: {', '.join(needed)}; all others are the default" if needed else ""


def ops_line(failure: Failure) -> str:
    """The ops up to the failure, each with its number in `swarden show`; consecutive steps are shown as one op.

    If there are many, only ops other than submissions and steps are shown.
    """
    first = failure.op_index + 2 - len(failure.ops)  # the last of these ops is the one that failed
    merged = list[tuple[int, Op, int]]()
    for number, op in enumerate(failure.ops, first):
        count = op.count if isinstance(op, Step) else 1
        if merged and isinstance(op, Step) and isinstance(merged[-1][1], Step) and merged[-1][1].engine == op.engine:
            merged[-1] = (*merged[-1][:2], merged[-1][2] + count)
        else:
            merged.append((number, op, count))
    others = [entry for entry in merged if not isinstance(entry[1], Step | Submit)]
    chosen = merged if len(merged) <= MAX_OPS else others
    several = len({op.engine for op in failure.ops}) > 1
    shown = []
    for number, op, count in chosen[-MAX_OPS:]:
        text = f"{number} {op_text(op)} {count}" if isinstance(op, Step) else f"{number} {op_text(op)}"
        shown.append(f"{text} (engine {op.engine})" if several else text)
    num_others = len(merged) - len(shown)
    return f"ops: {'; '.join(shown)}{f'; and {num_others} others' if num_others else ''}"


def request_lines(reference: Reference, named: Collection[int] = ()) -> Iterator[str]:
    """The requests of one engine with their prompts: the `named` ones, then the newest."""
    expectations = reference.expectations
    newest = [request_id for request_id in reversed(expectations) if request_id not in named]
    shown = sorted((*[request_id for request_id in expectations if request_id in named], *newest)[:MAX_REQUESTS])
    for request_id in shown:
        yield f"request r{request_id}: {_prompt(request_id, expectations)}"
    if len(expectations) > len(shown):
        yield f"and {len(expectations) - len(shown)} other requests"


def _prompt(request_id: int, expectations: dict[int, Expectation]) -> str:
    own = expectations[request_id]
    lens = {other: _num_shared(own, expectations[other]) for other in takewhile(request_id.__ne__, expectations)}
    other, shared = max(lens.items(), key=lambda item: item[1], default=(0, 0))
    text = f"prompt of {counted(own.prompt_len, 'token')}"
    if shared:
        text += f" ({'all' if shared == own.prompt_len else f'the first {shared}'} as in r{other})"
    text += f", namespace {own.namespace}" if own.namespace else ""
    outputs = counted(len(own.tokens) - own.prompt_len, "output token")
    ended = f", ended: {own.reason}" if own.reason else ""
    return f"{text}, {outputs} so far{', aborted' if own.is_aborted else ''}{ended}"


def _num_shared(own: Expectation, other: Expectation) -> int:
    """The length of the prefix that a prompt shares with another request."""
    if own.namespace != other.namespace:
        return 0
    pairs = zip(own.tokens[: own.prompt_len], other.tokens, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
