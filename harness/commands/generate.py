"""swarden generate: a checkpoint's answer to a prompt, through the engine's pools."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from engine_under_test.config import EngineConfig
from engine_under_test.engine import Engine, create_engine
from engine_under_test.errors import ConfigError
from engine_under_test.model.checkpoint import read_spec
from engine_under_test.model.draft import draft_model
from engine_under_test.model.tokenizer import TextStream, Tokenizer
from engine_under_test.ports import Ports, Proposer
from engine_under_test.sampling import SamplingParams
from engine_under_test.units import num_pages
from harness.commands.console import ERR, OUT, print_json
from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """One pool after a generation: its pages, the most in use at once, those that the cache keeps, and its bytes."""

    pages: int
    peak: int
    cached: int
    bytes: int


@dataclass(slots=True)
class Answer:
    """What came of a prompt."""

    prompt_tokens: int
    token_ids: list[int]
    text: str
    finish_reason: str
    steps: int
    pools: dict[str, PoolFigures]


def generate(
    *,
    checkpoint: Annotated[Path, typer.Option(help="directory with config.json, weights and tokenizer.json")],
    prompt: Annotated[str | None, typer.Option(help="the prompt itself")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="a file with the prompt")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="most tokens of the answer")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token")] = 0.0,
    top_p: Annotated[float, typer.Option(help="draw among the likeliest up to this share")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="draw among so many of the likeliest")] = None,
    seed: Annotated[int, typer.Option(help="decides the draws")] = 0,
    device: Annotated[str, typer.Option(help="where the model runs, as torch names it")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float64 or bfloat16")] = "float32",
    page_size: Annotated[int, typer.Option(min=1, help="tokens a page")] = 16,
    full_pages: Annotated[int | None, typer.Option(min=0, help="as many as the request needs by default")] = None,
    swa_pages: Annotated[int | None, typer.Option(min=0, help="as many as a window needs by default")] = None,
    chunk_len: Annotated[int, typer.Option(min=1, help="most prompt tokens a step")] = 512,
    draft_tokens: Annotated[int, typer.Option(min=0, help="tokens guessed a step; 0 guesses nothing")] = 0,
    draft: Annotated[Path | None, typer.Option(help="checkpoint that guesses, not what was said before")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run a checkpoint on a prompt, token by token; the pools' figures follow on standard error.

    SWARDEN_STRICT_MEM_CHECK applies; at level census freed pages are poisoned.
    """
    spec, tokenizer = read_spec(checkpoint), Tokenizer(checkpoint)
    token_ids = tokenizer.encode(_prompt(prompt, prompt_file))
    most = len(token_ids) + max_new_tokens + draft_tokens
    try:
        config = EngineConfig(
            page_size=page_size,
            full_pages=num_pages(most + 1, page_size) if full_pages is None else full_pages,
            swa_pages=swa_pages or 0,
            sliding_window=spec.sliding_window if swa_pages else None,
            max_running_requests=1,
            max_context_len=max(2, min(most, spec.max_context_len)),
            chunk_len=chunk_len,
            lookahead_tokens=draft_tokens,
            draft_tokens=draft_tokens,
        )
    except ConfigError as error:
        source = f"{checkpoint / 'config.json'}: " if "sliding_window" in str(error) else ""
        raise UsageError(f"{source}{error}") from error
    sampling = SamplingParams(max_new_tokens, spec.eos_token_ids, temperature, top_p, top_k, seed)
    ports = Ports(proposer=_proposer(draft, draft_tokens, device, dtype))
    engine = create_engine(config, checkpoint=checkpoint, device=device, dtype=dtype, ports=ports)
    answer = _answer(engine, token_ids, sampling, TextStream(tokenizer), is_told=not as_json)
    if as_json:
        print_json(asdict(answer))
    else:
        ERR.print(_table(answer))


def _proposer(checkpoint: Path | None, draft_tokens: int, device: str, dtype: str) -> Proposer | None:
    """The model of a checkpoint; None where guesses are looked up, or nobody guesses."""
    if checkpoint is None:
        return None
    if not draft_tokens:
        raise UsageError(f"draft: {checkpoint} is given and draft_tokens is 0; say how many tokens it is to guess")
    return draft_model(checkpoint, device=device, dtype=dtype)


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise UsageError("prompt: give --prompt TEXT or --prompt-file FILE, one of them")
    if text is not None:
        return text
    assert file is not None, "one of them is given"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as text: {error}") from error


def _answer(
    engine: Engine, token_ids: list[int], sampling: SamplingParams, stream: TextStream, *, is_told: bool
) -> Answer:
    """Step until the end; each piece of text is printed as soon as it is known."""
    engine.submit(token_ids, sampling)
    answer = Answer(len(token_ids), [], "", "", 0, {})
    peaks = dict.fromkeys(engine.memory.store.pools, 0)
    while not answer.finish_reason:
        outputs = engine.step()
        answer.steps += 1
        for ledger in engine.memory.ledgers.ledgers:
            peaks[ledger.name] = max(peaks[ledger.name], ledger.capacity - ledger.num_free)
        for output in outputs:
            answer.token_ids += output.token_ids
            piece = stream.add(output.token_ids)
            if output.finish_reason is not None:
                answer.finish_reason = output.finish_reason
                piece += stream.end()
            answer.text += piece
            if is_told:
                OUT.file.write(piece)  # as it is: a console would mend tabs and control characters
                OUT.file.flush()
    if answer.finish_reason not in ("stop", "length"):
        raise UsageError(f"the prompt of {len(token_ids)} tokens cannot be answered: {answer.finish_reason}")
    if is_told:
        OUT.file.write("\n")
    answer.pools = _figures(engine, peaks)
    return answer


def _figures(engine: Engine, peaks: dict[str, int]) -> dict[str, PoolFigures]:
    """Nobody runs any more, so that what is not free is the cache's."""
    figures = {}
    for ledger in engine.memory.ledgers.ledgers:
        kv = engine.memory.store.kv(ledger.name)
        figures[ledger.name] = PoolFigures(
            ledger.capacity, peaks[ledger.name], ledger.capacity - ledger.num_free, kv.numel() * kv.element_size()
        )
    return figures


def _table(answer: Answer) -> Table:
    table = Table("pool", "pages", "most in use", "cached", "MiB", box=None)
    for name, pool in answer.pools.items():
        table.add_row(name, *map(str, (pool.pages, pool.peak, pool.cached)), f"{pool.bytes / 2**20:.1f}")
    table.caption = (
        f"{answer.prompt_tokens} prompt tokens, {len(answer.token_ids)} new ({answer.finish_reason}), "
        f"{answer.steps} steps"
    )
    table.caption_justify = "left"
    return table
