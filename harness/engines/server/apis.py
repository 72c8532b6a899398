"""The APIs of servers: how a request is written, an answer is read, and what the metrics are called."""

from collections.abc import Mapping, Sequence
from itertools import count
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.engines.server import answers
from swarden.harness.engines.server.answers import Model, Part, Token, WrongForm, all_decoded, decoded
from swarden.harness.engines.server.client import Address, Call, Reply, text_at
from swarden.harness.kit import dialects
from swarden.harness.kit.dialects import LLAMA_CPP, OPENAI, SGLANG, VLLM, Body, Dialect

SALTS, OF_PROCESS = count(1), token_hex(4)  # so that two campaigns have no salt in common
OK, NO_ROOM = 200, 400  # a whole context has no room for a further token
FEATURES = frozenset({"stop", "stop_text", "seed", "priority", "salt", "n", "abort", "sleep"})
KindT = TypeVar("KindT")


class Wanted(NamedTuple):
    """A request: `seed` asks for sampling at temperature 1; one that is `cold` reads no cached prefix.

    It gets so many answers as `sequences`.  An answer ends with one of the tokens `stop`, or of the `stop_texts`.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    stop: Sequence[int] = ()
    seed: int | None = None
    priority: int = 0
    salt: int = 0
    is_cold: bool = False
    sequences: int = 1
    stop_texts: Sequence[str] = ()

    @property
    def temperature(self) -> float:
        return 0.0 if self.seed is None else 1.0


class Api(Protocol):
    """How to talk to one kind of server."""

    name: str
    dialect: Dialect
    features: frozenset[str] = FEATURES  # options of requests, and abort and sleep
    scores_prompt: ClassVar[Mapping[str, Any]] = {}  # asks for the log-probabilities of a cold prompt, too
    has_ids: ClassVar[bool] = True  # the tokens of an answer are token ids
    least_tolerance: ClassVar[float] = 1e-3
    spare_len: ClassVar[int] = 1  # of the context: no prompt may reach into its last tokens

    def body(self, wanted: Wanted, model: str) -> Body: ...

    def parts(self, chunks: Sequence[bytes], index: int = 0) -> Sequence[Part]:
        """The parts of the answer with this index.  Raises WrongForm."""

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        """The answer again without the prefix cache, if the API can ask for that; the reply if it is none.

        Raises WrongForm.  It is generated, unless the API shows the log-probabilities of a prompt.
        """
        body = self.body(wanted._replace(is_cold=True, sequences=1), model)
        reply = Call(address).made("POST", self.dialect.path, body)
        return tokens_of(self.parts(reply.chunks)) if reply.status == OK else reply

    def learn(self, address: Address, model: Model) -> dict[str, Any]:
        """The settings that a server with this model reports; None where it does not.  Raises UsageError."""


class Answer(NamedTuple):
    """One of the answers to a request; the reply says so if it has not the form of its API."""

    tokens: Sequence[Token]
    text: str
    reply: Reply


def read(api: Api, reply: Reply, index: int = 0) -> Answer:
    """The answer with this index."""
    try:
        parts = api.parts(reply.chunks, index)
        if reply.status == OK and not parts and not reply.is_cut:
            return Answer((), "", Reply(0, error="an empty answer"))
        return Answer(tokens_of(parts), "".join(part.text or part.content or "" for part in parts), reply)
    except WrongForm as error:
        return Answer((), "", without_parts(error))


def tokens_of(parts: Sequence[Part]) -> list[Token]:
    return [token for part in parts for token in part.tokens]


def without_parts(error: WrongForm) -> Reply:
    return Reply(0, error=printable(f"an answer without its parts: {error}"))


def as_prompt(api: Api, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
    """The answer as the end of a cold prompt, whose log-probabilities do not read the prefix cache; raises WrongForm.

    Its last tokens are generated instead if the prompt has no room for further ones.
    """
    cold = wanted._replace(stop=(), stop_texts=(), seed=None, sequences=1, is_cold=True)
    for rest in dict.fromkeys((0, 1, api.spare_len)):
        scored = answer[: max(0, len(answer) - rest)]
        body = api.body(cold._replace(prompt=[*wanted.prompt, *scored], max_new_tokens=max(1, rest)), model)
        body = msgspec.structs.replace(body, stream=False, **api.scores_prompt)
        reply = Call(address).made("POST", api.dialect.path, body)
        if reply.status != NO_ROOM:
            break
    if reply.status != OK:
        return reply
    part = answers.only(api.parts(reply.chunks))
    return [*part.in_prompt(scored, len(wanted.prompt)), *part.tokens[: len(answer) - len(scored)]]


def object_at(address: Address, path: str, kind: type[KindT]) -> KindT:
    """What a page says; raises UsageError."""
    page = Call(address).page(path)
    if not page.status:
        raise UsageError(f"{address.shown}{path}: {page.error}")
    return from_page(address, path, page.text.encode() if page.status == OK else b"{}", kind)


def from_page(address: Address, path: str, text: bytes, kind: type[KindT]) -> KindT:
    """What the text of a page says, which may also stand for a number; raises UsageError, which names the field."""
    try:
        return decoded(text, kind, strict=False)
    except WrongForm as error:
        raise UsageError(f"{address.shown}{path}: {error}; --api names the API, if it is another one") from error


def release_of(engine: str, version: str | None) -> str | None:
    """The release, without the name of its build."""
    return None if version is None else f"{engine}=={version.partition('+')[0]}"


class Vllm(Api):
    """OpenAI's completions with vLLM's additions."""

    name = "vllm"
    dialect = VLLM
    scores_prompt: ClassVar[Mapping[str, Any]] = {"prompt_logprobs": 1}

    def body(self, wanted: Wanted, model: str) -> Body:
        body = dialects.Completions[list[int]](
            model=model, prompt=[*wanted.prompt], max_tokens=wanted.max_new_tokens, stream=True
        )
        body.logprobs, body.return_token_ids, body.return_tokens_as_token_ids = 1, True, True
        body.temperature, body.seed, body.priority = wanted.temperature, wanted.seed, wanted.priority
        body.n, body.stop_token_ids, body.stop = wanted.sequences, [*wanted.stop], [*wanted.stop_texts]
        if wanted.salt or wanted.is_cold:
            body.cache_salt = f"cold-{OF_PROCESS}-{next(SALTS)}" if wanted.is_cold else f"salt-{wanted.salt}"
        return body

    def parts(self, chunks: Sequence[bytes], index: int = 0) -> list[answers.VllmPart]:
        decoded = all_decoded(chunks, answers.Choices[answers.VllmPart])
        return [part for choices in decoded for part in choices.of(index)]

    cold = as_prompt

    def learn(self, address: Address, model: Model) -> dict[str, Any]:
        settings: dict[str, Any] = {"model": model.id, "max_context_len": model.max_model_len}
        settings["release"] = release_of("vllm", object_at(address, "/version", answers.ServerInfo).version)
        if text_at(address, "/is_sleeping") is None:
            settings["left_out"] = ("sleep",)
        for line in (text_at(address, "/metrics") or "").splitlines():
            if line.startswith("vllm:cache_config_info"):
                labels = msgspec.json.encode(answers.numbers_in(line))
                cache = from_page(address, "/metrics", labels, answers.CacheConfig)
                settings["block_size"], settings["window"] = cache.block_size, cache.sliding_window
                settings["capacity"] = cache.kv_cache_size_tokens  # groups of layers share the blocks
        return settings


class Sglang(Api):
    """SGLang's own endpoint."""

    name = "sglang"
    dialect = SGLANG
    spare_len = 7  # of 0.5.23: a prompt is shorter than the context but for 6 tokens

    def body(self, wanted: Wanted, model: str) -> Body:
        sampling = dialects.SglangSampling(max_new_tokens=wanted.max_new_tokens, temperature=wanted.temperature)
        sampling.sampling_seed, sampling.n = wanted.seed, wanted.sequences
        sampling.stop_token_ids, sampling.stop = [*wanted.stop], [*wanted.stop_texts]
        body = dialects.Generate(
            input_ids=[*wanted.prompt], sampling_params=sampling, stream=True, priority=wanted.priority
        )
        body.return_logprob, body.top_logprobs_num = True, 1
        if wanted.is_cold:
            body.logprob_start_len = 0
        elif wanted.salt:
            body.extra_key = f"salt-{wanted.salt}"
        return body

    def parts(self, chunks: Sequence[bytes], index: int = 0) -> list[answers.SglangPart]:
        """Each object has the whole answer so far, so that the last one has all."""
        last = [chunk for chunk in chunks if decoded(chunk, Part).index == index][-1:]
        return all_decoded(last, answers.SglangPart)

    cold = as_prompt

    def learn(self, address: Address, model: Model) -> dict[str, Any]:
        reported = object_at(address, self.dialect.page, answers.ServerInfo)
        settings: dict[str, Any] = {"model": reported.model_path, "block_size": reported.page_size}
        settings |= {"max_context_len": reported.context_length, "capacity": reported.max_total_num_tokens}
        settings["release"] = release_of("sglang", reported.version)
        return settings if reported.enable_memory_saver else settings | {"left_out": ("sleep",)}


class LlamaCpp(Api):
    """llama.cpp's own endpoint.  Its KV has half precision: 1e-2 was seen between batches, and often nothing."""

    least_tolerance = 5e-2
    name = "llama.cpp"
    dialect = LLAMA_CPP
    features = frozenset({"abort", "stop_text", "seed", "n"})

    def body(self, wanted: Wanted, model: str) -> Body:
        body = dialects.LlamaCompletion(prompt=[*wanted.prompt], n_predict=wanted.max_new_tokens, stream=True)
        body.temperature, body.seed, body.stop = wanted.temperature, wanted.seed, [*wanted.stop_texts]
        body.n_probs, body.return_tokens, body.cache_prompt = 2, True, not wanted.is_cold
        body.top_k, body.top_p, body.min_p, body.n_cmpl = 0, 1.0, 0.0, wanted.sequences
        return body

    def parts(self, chunks: Sequence[bytes], index: int = 0) -> list[answers.LlamaPart]:
        return [part for part in all_decoded(chunks, answers.LlamaPart) if part.index == index]

    def learn(self, address: Address, model: Model) -> dict[str, Any]:
        """No page shows whether the slots share one memory (`kv_unified`), so its room is that of one context."""
        context_len = object_at(address, self.dialect.page, answers.Props).default_generation_settings.n_ctx
        return {"max_context_len": context_len, "block_size": 1, "capacity": context_len}


class OpenAI(Api):
    """The completions of any other server: tokens are the characters of texts."""

    name = "openai"
    dialect = OPENAI
    features = frozenset({"abort", "stop_text", "seed"})
    has_ids = False

    def body(self, wanted: Wanted, model: str) -> Body:
        text = "".join(map(chr, wanted.prompt))
        body = dialects.Completions[str](model=model, prompt=text, max_tokens=wanted.max_new_tokens, stream=True)
        body.temperature, body.seed, body.stop = wanted.temperature, wanted.seed, [*wanted.stop_texts]
        return body

    def parts(self, chunks: Sequence[bytes], index: int = 0) -> list[Part]:
        return [part for choices in all_decoded(chunks, answers.Choices[Part]) for part in choices.of(index)]

    def learn(self, address: Address, model: Model) -> dict[str, Any]:
        return {"model": model.id, "first_token": ord("a"), "last_token": ord("z")}


ALL: Sequence[Api] = (Vllm(), Sglang(), LlamaCpp(), OpenAI())
APIS: Mapping[str, Api] = {api.name: api for api in ALL}


def api_of(name: str) -> Api:
    if name not in APIS:
        raise UsageError(f"--api: {name!r} is not one of {', '.join(APIS)}")
    return APIS[name]
