"""swarden generate: runs a checkpoint on a prompt with swarden's own engine."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.model.spec import ModelSpec
from swarden.engine_under_test.model.tokenizer import TextStream, Tokenizer
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.commands.console import ERR, print_json, print_piece
from swarden.harness.commands.help import batch_option, memory_option, pair_option, sampling_option
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole
from swarden.harness.core.limits import MAX_PROMPT_BYTES
from swarden.harness.engines.own.serving import Serving, ServingSetup, serving


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """One pool after a generation: its pages, the peak of used pages, the pages still cached, and its bytes."""

    pages: int
    peak: int
    cached: int
    bytes: int


@dataclass(slots=True)
class Answer:
    """The answer to a prompt, with its figures; without `steps` and `pools` if the engines run in other processes."""

    prompt_tokens: int
    token_ids: list[int]
    text: str
    finish_reason: str
    steps: int | None
    pools: dict[str, PoolFigures]


def generate(
    *,
    checkpoint: Annotated[Path, typer.Option(help="directory with config.json, weights and tokenizer.json")],
    prompt: Annotated[str | None, typer.Option(help="the text of the prompt")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="a file with the prompt")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="maximum number of answer tokens")] = 128,
    device: Annotated[str, typer.Option(help="device of the model, as torch names it")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float64 or bfloat16")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
    temperature: Annotated[float, sampling_option(help="0 always takes the most likely token")] = 0.0,
    top_p: Annotated[float, sampling_option(help="sample from the most likely tokens of this total probability")] = 1.0,
    top_k: Annotated[int | None, sampling_option(help="sample from this many most likely tokens")] = None,
    seed: Annotated[int, sampling_option(help="seed of the sampling")] = 0,
    page_size: Annotated[int, memory_option(min=1, help="tokens per page")] = 16,
    full_pages: Annotated[int | None, memory_option(min=0, help="as many as the request needs by default")] = None,
    swa_pages: Annotated[int | None, memory_option(min=0, help="as many as the window needs by default")] = None,
    state_pages: Annotated[int | None, memory_option(min=0, help="as many as recurrent layers need by default")] = None,
    chunk_len: Annotated[int, batch_option(min=1, help="maximum number of prompt tokens per step")] = 512,
    draft_tokens: Annotated[int, batch_option(min=0, help="draft tokens per step; 0 for none")] = 0,
    draft: Annotated[Path | None, batch_option(help="checkpoint of a draft model; prompt lookup by default")] = None,
    disaggregated: Annotated[bool, pair_option("--disaggregated", help="one engine prefills, one decodes")] = False,
    over_tcp: Annotated[bool, pair_option("--over-tcp", help="run the two engines in their own processes")] = False,
    link_timeout_ms: Annotated[int | None, pair_option(min=1, help="a silent engine has failed after this")] = None,
) -> None:
    """Run a checkpoint on a prompt and stream the answer; then print the use of the pools to standard error.

    SWARDEN_STRICT_MEM_CHECK selects a strict memory check; at levels census and content freed pages are overwritten.
    """
    spec, tokenizer = read_spec(checkpoint), Tokenizer(checkpoint)
    token_ids = tokenizer.encode(_prompt(prompt, prompt_file))
    most = len(token_ids) + max_new_tokens + draft_tokens
    config = _configured(
        checkpoint,
        page_size=page_size,
        full_pages=num_pages(most + 1, page_size) if full_pages is None else full_pages,
        **_window_settings(spec, swa_pages),
        state_pages=state_pages or 0,
        max_running_requests=1,
        max_context_len=max(2, min(most, spec.max_context_len)),
        chunk_len=chunk_len,
        **_draft_settings(draft_tokens),
        **_link_settings(link_timeout_ms, disaggregated=disaggregated),
    )
    sampling = SamplingParams(max_new_tokens, spec.eos_token_ids, temperature, top_p, top_k, seed)
    with serving(config, ServingSetup(checkpoint, device, dtype, draft, disaggregated, over_tcp)) as served:
        answer = _answer(served, token_ids, sampling, TextStream(tokenizer), is_printed=not as_json)
    if as_json:
        print_json(asdict(answer))
    else:
        ERR.print(_table(answer) if answer.pools else _summary(answer))


def _configured(checkpoint: Path, **settings: Any) -> EngineConfig:
    """The configuration with `settings`; a UsageError about a value of the checkpoint names its file."""
    try:
        return EngineConfig(**settings)
    except ConfigError as error:
        source = f"{checkpoint / 'config.json'}: " if "sliding_window" in str(error) else ""
        raise UsageError(f"{source}{error}") from error


def _window_settings(spec: ModelSpec, swa_pages: int | None) -> dict[str, int | None]:
    return {"swa_pages": swa_pages or 0, "sliding_window": spec.sliding_window if swa_pages else None}


def _draft_settings(count: int) -> dict[str, int]:
    """The settings for drafts; recurrent layers keep a state for each draft, and three more."""
    return {"lookahead_tokens": count, "draft_tokens": count, "state_slots": count + 3}


def _link_settings(timeout_ms: int | None, *, disaggregated: bool) -> dict[str, int]:
    if timeout_ms is None:
        return {}
    if not disaggregated:
        raise UsageError("--link-timeout-ms: is for the link between two engines; give --disaggregated too")
    return {"link_timeout_ms": timeout_ms}


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise UsageError("prompt: give either --prompt TEXT or --prompt-file FILE")
    if text is not None:
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise UsageError("--prompt: is not UTF-8; want text")
        return text
    assert file is not None, "one of them is given"
    try:
        return read_whole(file, most=MAX_PROMPT_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as text: {error}") from error


def _answer(
    served: Serving, token_ids: list[int], sampling: SamplingParams, stream: TextStream, *, is_printed: bool
) -> Answer:
    """Make steps until the request ends; each piece of text is printed as soon as it is complete."""
    served.server.submit(token_ids, sampling)
    answer = Answer(len(token_ids), [], "", "", None, {})
    peaks, num_steps = Counter[str](), 0
    while served.server.has_work:
        outputs = served.server.step()
        num_steps += 1
        for name, ledger in _ledgers(served):
            peaks[name] = max(peaks[name], ledger.capacity - ledger.num_free)
        for output in outputs:
            answer.token_ids += output.token_ids
            piece = stream.add(output.token_ids)
            if output.finish_reason is not None:
                answer.finish_reason = output.finish_reason
                piece += stream.end()
            answer.text += piece
            if is_printed:
                print_piece(piece)
    if answer.finish_reason not in ("stop", "length"):
        raise UsageError(f"the prompt of {len(token_ids)} tokens cannot be answered: {answer.finish_reason}")
    if is_printed:
        print_piece("\n")
    if served.engines:
        answer.steps, answer.pools = num_steps, _figures(served, peaks)
    return answer


def _ledgers(served: Serving) -> Iterator[tuple[str, Ledger]]:
    for side, engine in served.engines.items():
        for ledger in engine.memory.ledgers.ledgers:
            yield side + ledger.name, ledger


def _figures(served: Serving, peaks: Mapping[str, int]) -> dict[str, PoolFigures]:
    """The pools after the last request: every page that is not free is cached."""
    figures = {}
    for side, engine in served.engines.items():
        for ledger in engine.memory.ledgers.ledgers:
            name, cached = side + ledger.name, ledger.capacity - ledger.num_free
            num_bytes = engine.memory.store.kv(ledger.name).nbytes
            figures[name] = PoolFigures(ledger.capacity, peaks[name], cached, num_bytes)
    return figures


def _table(answer: Answer) -> Table:
    table = Table("pool", "pages", "most in use", "cached", "MiB", box=None)
    for name, pool in answer.pools.items():
        table.add_row(name, *map(str, (pool.pages, pool.peak, pool.cached)), f"{pool.bytes / 2**20:.1f}")
    table.caption = _summary(answer)
    table.caption_justify = "left"
    return table


def _summary(answer: Answer) -> str:
    steps = "" if answer.steps is None else f", {answer.steps} steps"
    return f"{answer.prompt_tokens} prompt tokens, {len(answer.token_ids)} new ({answer.finish_reason}){steps}"
