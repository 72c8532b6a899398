"""What a server may say: types and limits of its answers and pages, which are checked before anything is made of them.

A field that is null, or that is missing where it has a default, is not known.
"""

from collections.abc import Iterable, Sequence
from math import isfinite, nan
from operator import itemgetter
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from swarden.harness.core.limits import MAX_NUMBER, MAX_TOKEN_ID
from swarden.harness.kit.dialects import TOKEN_ID
from swarden.harness.kit.settings import within

MOST_ELEMENTS = 1 << 22  # the limit of all JSON objects that are in memory at the same time
KindT = TypeVar("KindT")
TokenId = Annotated[int, within(0, MAX_TOKEN_ID)]
TokenName = Annotated[str, Meta(pattern=f"^({TOKEN_ID})?[0-9]{{1,18}}$")]
Index = Annotated[int, within(0, MAX_NUMBER)]
Name = Annotated[str, Meta(max_length=4096)]
ContextLen = Annotated[int, within(8, MAX_NUMBER)]
PageSize = Annotated[int, within(1, 1 << 16)]
Capacity = Annotated[int, within(0, 1 << 40)]
Version = Annotated[str, Meta(pattern=r"^[\w.+-]{1,80}$")]


class WrongForm(Exception):
    """What a server says has another form than its API; the text names the field."""


class ErrorCode(Struct):
    """An error inside of a stream; its code may be the status of an answer that is an error."""

    code: Annotated[int, within(400, 599)]


class Ended(Struct):
    """Why an answer of SGLang ended; one that has a status is refused, in an answer of status 200."""

    status_code: Annotated[int, within(400, 599)] | None = None
    message: str | None = None


class EventMeta(Struct):
    finish_reason: Ended | str | None = None


class Event(Struct):
    """An object of any stream."""

    error: msgspec.Raw = msgspec.Raw(b"null")
    meta_info: EventMeta | None = None

    @property
    def refusal(self) -> Ended | None:
        """Why the request is refused, within the answer; None if it is not."""
        ended = self.meta_info and self.meta_info.finish_reason
        return ended if isinstance(ended, Ended) and ended.status_code is not None else None


class Token(NamedTuple):
    """A token of an answer with its log-probability, and the likeliest token with its own; NaN if absent."""

    id: int
    logprob: float = nan
    best: int | None = None
    best_logprob: float = nan


def token_of(token: int, logprob: float | None, scores: Iterable[tuple[int, float]]) -> Token:
    """A token, with the likeliest one of those with these log-probabilities."""
    best: tuple[int | None, float] = max(scores, key=itemgetter(1), default=(None, nan))
    return Token(token, nan if logprob is None else logprob, *best)


# --- the answers of the APIs


class Part(Struct, gc=False):
    """A part of the answer with this index."""

    index: Index = 0
    text: str | None = None
    content: str | None = None

    @property
    def tokens(self) -> list[Token]:
        """Raises WrongForm.  Without token ids, the characters of the text."""
        return [Token(ord(character)) for character in self.text or ""]

    def in_prompt(self, token_ids: Sequence[int], first: int) -> list[Token]:
        """The tokens of the prompt after the `first` ones, which have these ids; raises WrongForm."""
        raise WrongForm("the API shows no log-probabilities of a prompt")


class Logprobs(Struct, gc=False):
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[TokenName, float] | None] | None = None


class InPrompt(Struct, gc=False):
    logprob: float


PartT = TypeVar("PartT", bound=Part)


class Choices(Struct, Generic[PartT]):
    """An object of OpenAI's completions."""

    choices: list[PartT]

    def of(self, index: int) -> list[PartT]:
        return [part for part in self.choices if part.index == index]


class VllmPart(Part, kw_only=True):
    token_ids: list[TokenId]
    logprobs: Logprobs | None = None
    prompt_logprobs: list[dict[TokenId, InPrompt] | None] | None = None

    @property
    def tokens(self) -> list[Token]:
        tokens, reported = [], self.logprobs or Logprobs()
        logprobs = reported.token_logprobs or [None] * len(self.token_ids)
        tops = reported.top_logprobs or [None] * len(self.token_ids)
        for token, logprob, top in aligned("token_ids, logprobs", self.token_ids, logprobs, tops):
            scores = [(int(name.removeprefix(TOKEN_ID)), score) for name, score in (top or {}).items()]
            tokens.append(token_of(token, logprob, scores))
        return tokens

    def in_prompt(self, token_ids: Sequence[int], first: int) -> list[Token]:
        tokens = []
        for token, entry in aligned("prompt, prompt_logprobs", token_ids, (self.prompt_logprobs or [])[first:]):
            if entry is None or token not in entry:
                raise WrongForm(f"prompt_logprobs: token {token} of the prompt is missing")
            scores = [(likely, score.logprob) for likely, score in entry.items()]
            tokens.append(token_of(token, entry[token].logprob, scores))
        return tokens


Scored = tuple[float | None, TokenId, str | None]


class SglangMeta(Struct):
    output_token_logprobs: list[Scored]
    output_top_logprobs: list[list[Scored] | None]
    input_token_logprobs: list[Scored] = []
    input_top_logprobs: list[list[Scored] | None] = []


class SglangPart(Part, kw_only=True):
    meta_info: SglangMeta

    @property
    def tokens(self) -> list[Token]:
        return self._scored(self.meta_info.output_token_logprobs, self.meta_info.output_top_logprobs)

    def in_prompt(self, token_ids: Sequence[int], first: int) -> list[Token]:
        return self._scored(self.meta_info.input_token_logprobs[first:], self.meta_info.input_top_logprobs[first:])

    def _scored(self, chosen: Sequence[Scored], tops: Sequence[Sequence[Scored] | None]) -> list[Token]:
        tokens = []
        for (logprob, token, _), top in aligned("token_logprobs, top_logprobs", chosen, tops):
            scores = [(likely, score) for score, likely, _ in top or () if score is not None]
            tokens.append(token_of(token, logprob, scores))
        return tokens


class Likely(Struct, gc=False):
    id: TokenId
    logprob: float


class LlamaToken(Likely, gc=False):
    top_logprobs: list[Likely]


class LlamaPart(Part):
    completion_probabilities: list[LlamaToken] | None = None

    @property
    def tokens(self) -> list[Token]:
        tokens = []
        for entry in self.completion_probabilities or ():
            scores = [(top.id, top.logprob) for top in entry.top_logprobs]
            tokens.append(token_of(entry.id, entry.logprob, scores))
        return tokens


# --- the pages on which a server describes itself; one that it lacks is as one without a field


class ModelMeta(Struct):
    """llama.cpp's: the number of its token ids."""

    n_vocab: Annotated[int, within(2, 1 << 20)] | None = None


class Model(Struct):
    id: Name | None = None
    max_model_len: ContextLen | None = None
    meta: ModelMeta | None = None


class Models(Struct):
    data: list[Model] | None = None


class Tokenized(Struct):
    """An answer of /tokenize."""

    tokens: list[Index] = []


class CacheConfig(Struct):
    """The labels of vLLM's metric."""

    block_size: PageSize | None = None
    sliding_window: Annotated[int, within(0, 1 << 20)] | None = None
    kv_cache_size_tokens: Capacity | None = None


class IsSleeping(Struct):
    is_sleeping: bool = False


class ServerInfo(Struct):
    """SGLang's; vLLM's has only the version."""

    model_path: Name | None = None
    page_size: PageSize | None = None
    context_length: ContextLen | None = None
    max_total_num_tokens: Capacity | None = None
    enable_memory_saver: bool | None = None
    version: Version | None = None


class Generation(Struct):
    n_ctx: ContextLen | None = None


class Props(Struct):
    """llama.cpp's."""

    default_generation_settings: Generation = msgspec.field(default_factory=Generation)


def decoded(text: bytes, kind: type[KindT], *, strict: bool = True) -> KindT:
    """One JSON object; raises WrongForm.  Unless it is `strict`, a text may stand for a number."""
    return all_decoded([text], kind, strict=strict)[0]


def all_decoded(texts: Sequence[bytes], kind: type[KindT], *, strict: bool = True) -> list[KindT]:
    """JSON objects that are kept at the same time, so that their elements are counted together first."""
    if sum(text.count(mark) for text in texts for mark in (b"{", b"[", b",")) > MOST_ELEMENTS:
        raise WrongForm(f"more than {MOST_ELEMENTS} elements")
    try:
        return [msgspec.json.decode(text, type=kind, strict=strict) for text in texts]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message, _, field = str(error).replace("`", "").partition(" - at $.")
        raise WrongForm(f"{field}: {message}" if field else message) from error


def aligned(names: str, *lists: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """The entries of lists with these names that belong together; raises WrongForm if some have no counterpart."""
    if len(sizes := {*map(len, lists)}) > 1:
        raise WrongForm(f"{names}: lists of {' and '.join(map(str, sorted(sizes)))} entries")
    return zip(*lists, strict=True)


def only(parts: Sequence[KindT]) -> KindT:
    """The part of an answer that is one object; raises WrongForm."""
    if len(parts) != 1:
        raise WrongForm(f"{len(parts)} answers, want 1")
    return parts[0]


# --- metrics


def figures_in(page: str) -> dict[str, float]:
    """The metrics of a page, added up over their labels, without those that are no number or not finite."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        if not name or " " in name:  # a comment, or no metric
            continue
        try:
            sums[name] = sums.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return {name: figure for name, figure in sums.items() if isfinite(figure)}


def numbers_in(line: str) -> dict[str, str]:
    """The labels of a metric that are digits."""
    parts = line.partition("{")[2].replace(r"\"", "'").split('"')
    labels = zip(parts[::2], parts[1::2], strict=False)
    return {name.strip(" ,="): value for name, value in labels if value.isascii() and value.isdigit()}
