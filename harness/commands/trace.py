"""swarden trace: serves a production trace with all checks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from swarden.engine_under_test.config import HOST_POLICIES, EngineConfig
from swarden.engine_under_test.errors import ConfigError
from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.commands.fuzz import settings_of
from swarden.harness.commands.help import EngineOption, batch_option, check_option, memory_option
from swarden.harness.commands.layout import print_lines
from swarden.harness.core.changes import Changes
from swarden.harness.core.driver import STUCK, Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import Pool, Shape, Target
from swarden.harness.report.story import failure_lines
from swarden.harness.search.fixed_settings import with_settings
from swarden.harness.traces.mooncake import TraceRequest, read_mooncake
from swarden.harness.traces.serve import Pace, Served, Summary, longest, oracle_config, serve

SETTINGS = memory_option("--set", help="a setting of a release, in JSON, such as host_ratio=2.0", metavar="NAME=VALUE")
MAX_HOST_RATIO = 1024
CHECK_EVERY = 1
ORACLE_CHECKS_EVERY = 64  # a check covers the whole pool, which holds the whole trace
RATIO_DECAY_STEPS = EngineConfig().new_token_ratio_decay_steps  # divided by the scale, as the output lengths are

ORACLE = "one request at a time, unbounded pools, full attention only, one page per block of the trace"
CHECKS = f"check every Nth step, 0: none; default {CHECK_EVERY}, with --oracle {ORACLE_CHECKS_EVERY}"


def trace(
    file: Annotated[Path, typer.Argument(help="a Mooncake trace, one request per line", show_default=False)],
    *,
    engine: EngineOption = OWN,
    limit: Annotated[int | None, typer.Option(min=1, help="serve only this many requests")] = None,
    scale: Annotated[int, typer.Option(min=1, help="divide all lengths by this")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
    check_every: Annotated[int | None, check_option(min=0, help=CHECKS)] = None,
    oracle: Annotated[bool, check_option("--oracle", help=ORACLE)] = False,
    mutant: Annotated[str | None, check_option(help="plant the bug with this id, as in 'swarden mutants'")] = None,
    page_size: Annotated[int, memory_option(min=1, help="tokens per page")] = 16,
    full_pages: Annotated[int, memory_option(min=0, help="pages of the full pool")] = 256,
    swa_pages: Annotated[int, memory_option(min=0, help="pages of the SWA pool, 0: no SWA pool")] = 128,
    window: Annotated[int, memory_option(min=2, help="tokens in the window of a token, itself included")] = 128,
    host_ratio: Annotated[float, memory_option(min=0, help="host pages per device page, 0: no host tier")] = 0,
    host_policy: Annotated[str, memory_option(help=", ".join(HOST_POLICIES))] = HOST_POLICIES[0],
    chunk_len: Annotated[int, batch_option(min=1, help="maximum number of prompt tokens per step")] = 256,
    max_running: Annotated[int, batch_option(min=1, help="maximum number of requests that hold KV")] = 32,
    mixed: Annotated[bool, batch_option("--mixed", help="decode running requests in the batch of a prefill")] = False,
    overlap: Annotated[bool, batch_option("--overlap", help="launch a pass before the last one is complete")] = False,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    step_ms: Annotated[int, batch_option(min=1, max=MAX_NUMBER, help="milliseconds per engine step")] = 100,
) -> None:
    """Serve a production trace with a stand-in for the model; stop at the first violation.

    SWARDEN_STRICT_MEM_CHECK adds a strict check, which is the only one before the end with --check-every 0.
    """
    (target := target_of(engine)).check_environment()
    requests = read_mooncake(file, limit=limit, scale=scale)
    pools = [Pool("full", full_pages), Pool("swa", swa_pages, window)][: 2 if swa_pages else 1]
    shape = Shape(page_size, pools, chunk_len, max_running, longest(requests))
    of_own = {"--oracle": oracle, "--host-ratio": host_ratio, "--overlap": overlap, "--mixed": mixed}
    _refuse(target, {"--set": settings} if target.name == OWN else of_own)
    of_own_engine = {
        "overlap": overlap,
        "mixed_batches": mixed,
        "host_full_pages": _host_pages(full_pages, host_ratio),
        "host_swa_pages": _host_pages(swa_pages, host_ratio),
        "host_policy": host_policy,
        "new_token_ratio_decay_steps": max(1, RATIO_DECAY_STEPS // scale),
    }
    try:
        further = of_own_engine if target.name == OWN else settings_of(settings or [], [engine])
        config = oracle_config(requests) if oracle else _config_of(target, shape, further)
        with Changes(mutant).planted(target):
            served = _serve(requests, config, Pace(step_ms, _cadence(check_every, oracle=oracle), oracle), engine)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    raise typer.Exit(_print_served(served, as_json=as_json))


def _refuse(target: Target, options: Mapping[str, Any]) -> None:
    if given := [name for name, value in options.items() if value]:
        raise UsageError(f"{given[0]} is not for the engine {target.name}; leave it out")


def _config_of(target: Target, shape: Shape, settings: Mapping[str, Any]) -> Any:
    """A configuration of this shape with these settings, in JSON form unless the engine is swarden's own."""
    config = target.config_of(shape)
    return replace(config, **settings) if target.name == OWN else with_settings(target, [config], settings)[0]


def _host_pages(pages: int, ratio: float) -> int:
    if not ratio <= MAX_HOST_RATIO:  # nor is "nan"
        raise UsageError(f"--host-ratio: {ratio} is not a number up to {MAX_HOST_RATIO}")
    return int(pages * ratio)


def _cadence(check_every: int | None, *, oracle: bool) -> int:
    if check_every is not None:
        return check_every
    return ORACLE_CHECKS_EVERY if oracle else CHECK_EVERY


def _serve(requests: Sequence[TraceRequest], config: Any, pace: Pace, engine: str) -> Served:
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal) as bar:
        task = bar.add_task("requests", total=len(requests))
        return serve(requests, config, pace, on_end=lambda: bar.advance(task), engine=engine)


def _print_served(served: Served, *, as_json: bool) -> ExitCode:
    remarks = ERR if as_json else OUT
    if served.failure is not None:
        print_lines(remarks, failure_lines(served.failure))
    if served.cut_short:
        count, first = len(served.cut_short), served.cut_short[0]
        remarks.print(f"requests cut short: {count}, the first was {first}")
    if as_json:
        print_json(asdict(served.summary))
    else:
        OUT.print(_table(served.summary))
    return _code(served.failure)


def _table(summary: Summary) -> Table:
    table = Table("figure", "value", box=None, show_header=False)
    values: dict[str, object] = {
        "requests": summary.requests,
        "prompt tokens": summary.prompt_tokens,
        "output tokens": summary.output_tokens,
        "hit share": f"{summary.hit_share:.2%}",
        "hit share beyond the first block": f"{summary.hit_share_beyond_first_block:.2%}",
        "retractions": summary.retractions,
        "engine steps": summary.steps,
        "seconds": f"{summary.seconds:.1f}",
        "violations": summary.violations,
    }
    for name, use in summary.pools.items():
        evicted = "evictions not reported" if use.evicted is None else f"{use.evicted} evicted"
        values[f"{name} pages"] = f"{use.capacity}, at most {use.peak} in use, {evicted}"
    for name, value in values.items():
        table.add_row(name, str(value))
    return table


def _code(failure: Failure | None) -> ExitCode:
    if failure is None:
        return ExitCode.CLEAN
    return ExitCode.STUCK if failure.fingerprint == STUCK else ExitCode.VIOLATED
