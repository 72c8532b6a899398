"""The engines of `swarden generate`: one engine, or a prefill and a decode engine."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.model.draft import draft_model
from swarden.engine_under_test.pair import create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.processes import ProcessPair, create_process_pair
from swarden.engine_under_test.request import Server
from swarden.harness.core.errors import UsageError


class Serving(NamedTuple):
    """A server, and its engines in this process, by the prefix of their pool names."""

    server: Server
    engines: Mapping[str, Engine]


class ServingSetup(NamedTuple):
    """The way to run a checkpoint: with a `draft` one, on two engines (`disaggregated`), two processes (`over_tcp`)."""

    checkpoint: Path
    device: str
    dtype: str
    draft: Path | None
    disaggregated: bool
    over_tcp: bool


@contextmanager
def _processes(config: EngineConfig, running: ServingSetup) -> Iterator[ProcessPair]:
    """Two engine processes for the body; raises UsageError if one does not start or restart."""
    try:
        with closing(
            create_process_pair(config, checkpoint=running.checkpoint, device=running.device, dtype=running.dtype)
        ) as pair:
            yield pair
    except EngineError as error:
        raise UsageError(str(error)) from error


@contextmanager
def serving(config: EngineConfig, running: ServingSetup) -> Iterator[Serving]:
    """Engines for the body; their processes end after it.  Raises UsageError for options that contradict each other."""
    checkpoint, device, dtype = running.checkpoint, running.device, running.dtype
    if running.over_tcp and not running.disaggregated:
        raise UsageError("--over-tcp: links two engines; give --disaggregated too")
    if running.over_tcp and running.draft is not None:
        raise UsageError("--draft: does not work with --over-tcp; leave it out to get drafts by prompt lookup")
    if running.draft is not None and not config.draft_tokens:
        raise UsageError(f"--draft: {running.draft} is given, but --draft-tokens is 0; give the draft tokens per step")
    if running.over_tcp:
        with _processes(config, running) as pair:
            yield Serving(pair, {})
        return
    proposer = None if running.draft is None else draft_model(running.draft, device=device, dtype=dtype)
    ports = Ports(proposer=proposer)
    if running.disaggregated:
        both = create_pair(config, checkpoint=checkpoint, device=device, dtype=dtype, ports=(Ports(), ports))
        yield Serving(both, {"prefill ": both.prefill, "decode ": both.decode})
    else:
        engine = create_engine(config, checkpoint=checkpoint, device=device, dtype=dtype, ports=ports)
        yield Serving(engine, {"": engine})
