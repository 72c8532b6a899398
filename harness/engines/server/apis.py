"""The APIs of servers: how a request is written, an answer is read, and what the metrics are called."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from math import nan
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.engines.server.client import Address, Call, Reply, text_at

FLUSH, PAUSE, RESUME, SLEEP, WAKE = "flush", "pause", "resume", "sleep", "wake"
SALTS, OF_PROCESS = count(1), token_hex(4)  # the salts are not those of another campaign
OK, NO_ROOM = 200, 400  # a whole context has no room for a further token
NOT_OF_FORM = (  # errors of reading an answer that has not the form of its API
    *(KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError),
    msgspec.MsgspecError,
)
METRIC = re.compile(r"^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)$")


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


class Token(NamedTuple):
    """A token of an answer with its log-probability, and the likeliest token with its own; NaN if absent."""

    id: int
    logprob: float = nan
    best: int | None = None
    best_logprob: float = nan


class Metrics(NamedTuple):
    """The names of metrics, "" for none.  `progress` grow with the tokens that are computed."""

    running: str = ""
    waiting: str = ""
    usage: str = ""
    preemptions: str = ""
    progress: Sequence[str] = ()


class Api(Protocol):
    """How to talk to one kind of server.  `acts` are the calls of ops: a path with its query."""

    name: str
    path: str
    metrics: Metrics
    acts: ClassVar[Mapping[str, str]]
    features: frozenset[str]  # of requests: stop, stop_text, seed, priority, salt, n; abort and sleep
    has_ids: ClassVar[bool] = True  # the tokens of an answer are token ids
    least_tolerance: ClassVar[float] = 1e-3

    def body(self, wanted: Wanted, model: str) -> dict[str, Any]: ...

    def tokens(self, reply: Reply) -> list[Token]:
        """The tokens of an answer, or of the part before it was cut.  Raises KeyError, TypeError or ValueError."""

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        """The answer again without the prefix cache; the reply if it is none."""

    def learn(self, address: Address) -> dict[str, Any]:
        """The settings of a configuration that the server reports."""


def of_sequence(reply: Reply, index: int) -> Reply:
    """The part of a reply that is the answer with this index."""
    chunks = []
    for chunk in reply.chunks:
        of_all = chunk.get("choices", [chunk])
        choices = [choice for choice in of_all if choice.get("index", 0) == index]
        chunks += [{**chunk, "choices": choices} if "choices" in chunk else chunk] * bool(choices)
    return reply._replace(chunks=chunks)


def read(api: Api, reply: Reply, index: int = 0) -> tuple[Sequence[Token], Reply]:
    """The tokens of the answer with this index, and its part of the reply, which says so if it has none."""
    try:
        reply = of_sequence(reply, index)
        if reply.status == OK and not reply.chunks and not reply.is_cut:
            return (), Reply(0, error="an empty answer")
        text_of(reply)  # raises an error of NOT_OF_FORM if a text is not a string
        return checked(api.tokens(reply)), reply
    except NOT_OF_FORM as error:
        return (), without_parts(error)


def checked(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, whose ids and log-probabilities are numbers; raises an error of NOT_OF_FORM."""
    return msgspec.convert([tuple(token) for token in tokens], list[Token])


def without_parts(error: Exception) -> Reply:
    return Reply(0, error=printable(f"an answer without its parts: {error!r}"[:2000]))


def continued(wanted: Wanted, answer: Sequence[int]) -> Wanted:
    """A cold request for one more token behind an answer, or a part of it."""
    prompt = [*wanted.prompt, *answer]
    cold = wanted._replace(prompt=prompt, max_new_tokens=1, stop=(), stop_texts=(), is_cold=True)
    return cold._replace(seed=None, sequences=1)


def text_of(reply: Reply) -> str:
    """The text of an answer; each object of SGLang has the whole text so far.  Raises an error of NOT_OF_FORM."""
    if reply.chunks and "meta_info" in reply.chunks[-1]:
        return str(reply.chunks[-1].get("text") or "")
    parts = [part for chunk in reply.chunks for part in chunk.get("choices", [chunk])]
    return "".join(part.get("text") or part.get("content") or "" for part in parts)


def passed_stop(reply: Reply, stop_texts: Sequence[str]) -> str:
    """The first of these texts behind which the answer goes on; "" if it does not."""
    answer = text_of(reply)
    return next((text for text in stop_texts if 0 <= answer.find(text) < len(answer) - len(text)), "")


def figures(address: Address) -> dict[str, float]:
    """The metrics of a server, added up over their labels; a figure that is none is left out."""
    sums: dict[str, float] = {}
    for line in (text_at(address, "/metrics") or "").splitlines():
        if match := METRIC.match(line):
            try:
                sums[match[1]] = sums.get(match[1], 0.0) + float(match[3])
            except ValueError:
                continue
    return sums


def object_at(address: Address, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode((text_at(address, path) or "{}").encode(), type=dict[str, Any])
    except NOT_OF_FORM:
        return {}


class Vllm(Api):
    """OpenAI's completions with vLLM's additions."""

    name = "vllm"
    path = "/v1/completions"
    metrics = Metrics(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        ("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
    )
    acts: ClassVar[Mapping[str, str]] = {
        FLUSH: "/reset_prefix_cache",
        PAUSE: "/pause?mode=keep&clear_cache=false",
        RESUME: "/resume",
        SLEEP: "/sleep?level=1",
        WAKE: "/wake_up",
    }
    features = frozenset({"abort", "stop", "stop_text", "seed", "priority", "salt", "n", "sleep"})

    def body(self, wanted: Wanted, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model, "prompt": wanted.prompt, "max_tokens": wanted.max_new_tokens}
        body |= {"temperature": 0.0, "logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True}
        body["stream"] = True
        if wanted.seed is not None:
            body |= {"temperature": 1.0, "seed": wanted.seed}
        if wanted.sequences > 1:
            body["n"] = wanted.sequences
        if wanted.stop:
            body["stop_token_ids"] = wanted.stop
        if wanted.stop_texts:
            body["stop"] = wanted.stop_texts
        if wanted.priority:
            body["priority"] = wanted.priority
        if wanted.salt or wanted.is_cold:
            body["cache_salt"] = f"cold-{OF_PROCESS}-{next(SALTS)}" if wanted.is_cold else f"salt-{wanted.salt}"
        return body

    def tokens(self, reply: Reply) -> list[Token]:
        tokens = []
        for chunk in reply.chunks:
            for choice in chunk["choices"]:
                reported = choice.get("logprobs") or {}
                logprobs = reported.get("token_logprobs") or [nan] * len(choice["token_ids"])
                tops = reported.get("top_logprobs") or [{}] * len(choice["token_ids"])
                for token, logprob, top in zip(choice["token_ids"], logprobs, tops, strict=True):
                    best = max(top.items(), key=lambda likely: likely[1], default=None)
                    named = (None, nan) if best is None else (int(best[0].removeprefix("token_id:")), best[1])
                    tokens.append(Token(token, nan if logprob is None else logprob, *named))
        return tokens

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        """The log-probabilities of the answer as the end of a prompt, which do not read the prefix cache."""
        for known in (answer, answer[:-1]):
            body = self.body(continued(wanted, known), model) | {"prompt_logprobs": 1, "stream": False}
            reply = Call(address).made("POST", self.path, body)
            if reply.status != NO_ROOM:
                break
        if reply.status != OK:
            return reply
        tokens = []
        reported = reply.chunks[0]["choices"][0]["prompt_logprobs"]
        for token, entry in zip(known, reported[len(wanted.prompt) :], strict=True):
            best = max(entry, key=lambda likely: entry[likely]["logprob"])
            tokens.append(Token(token, entry[str(token)]["logprob"], int(best), entry[best]["logprob"]))
        return [*tokens, *self.tokens(reply)[: len(answer) - len(known)]]

    def learn(self, address: Address) -> dict[str, Any]:
        model = (object_at(address, "/v1/models").get("data") or [{}])[0]
        settings = {"model": model.get("id"), "max_context_len": model.get("max_model_len")}
        if text_at(address, "/is_sleeping") is None:
            settings["left_out"] = ("sleep",)
        for line in (text_at(address, "/metrics") or "").splitlines():
            if line.startswith("vllm:cache_config_info"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if labels.get("block_size", "").isdigit():
                    settings["block_size"] = int(labels["block_size"])
                if labels.get("sliding_window", "").isdigit():
                    settings["window"] = int(labels["sliding_window"])
                if labels.get("kv_cache_size_tokens", "").isdigit():  # groups of layers share the blocks
                    settings["capacity"] = int(labels["kv_cache_size_tokens"])
        return settings


class Sglang(Api):
    """SGLang's own endpoint."""

    name = "sglang"
    path = "/generate"
    metrics = Metrics(
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:token_usage",
        "sglang:num_retracted_reqs",
        ("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
    )
    acts: ClassVar[Mapping[str, str]] = {
        FLUSH: "/flush_cache",
        PAUSE: "/pause_generation",
        RESUME: "/continue_generation",
        SLEEP: "/release_memory_occupation",
        WAKE: "/resume_memory_occupation",
    }
    features = frozenset({"abort", "stop", "stop_text", "seed", "priority", "salt", "n", "sleep"})

    def body(self, wanted: Wanted, model: str) -> dict[str, Any]:
        sampling: dict[str, Any] = {"max_new_tokens": wanted.max_new_tokens, "temperature": 0.0}
        if wanted.seed is not None:
            sampling |= {"temperature": 1.0, "sampling_seed": wanted.seed}
        if wanted.sequences > 1:
            sampling["n"] = wanted.sequences
        if wanted.stop:
            sampling["stop_token_ids"] = wanted.stop
        if wanted.stop_texts:
            sampling["stop"] = wanted.stop_texts
        body: dict[str, Any] = {"input_ids": wanted.prompt, "sampling_params": sampling, "stream": True}
        body |= {"return_logprob": True, "top_logprobs_num": 1}
        if wanted.priority:
            body["priority"] = wanted.priority
        if wanted.is_cold:
            body["logprob_start_len"] = 0
        elif wanted.salt:
            body["extra_key"] = f"salt-{wanted.salt}"
        return body

    def tokens(self, reply: Reply) -> list[Token]:
        """Each object has the whole answer so far."""
        if not reply.chunks:
            return []
        meta = reply.chunks[-1]["meta_info"]
        return [
            Token(token, logprob, top[0][1], top[0][0])
            for (logprob, token, _), top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True)
        ]

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        for known in (answer, answer[:-1]):
            reply = Call(address).made(
                "POST", self.path, self.body(continued(wanted, known), model) | {"stream": False}
            )
            if reply.status != NO_ROOM:
                break
        if reply.status != OK:
            return reply
        meta, first = reply.chunks[0]["meta_info"], len(wanted.prompt)
        reported = zip(meta["input_token_logprobs"][first:], meta["input_top_logprobs"][first:], strict=True)
        tokens = [Token(token, logprob, top[0][1], top[0][0]) for (logprob, token, _), top in reported]
        return [*tokens, *self.tokens(reply)[: len(answer) - len(known)]]

    def learn(self, address: Address) -> dict[str, Any]:
        reported = object_at(address, "/get_server_info")
        names = {
            "block_size": "page_size",
            "max_context_len": "context_length",
            "capacity": "max_total_num_tokens",
        }
        settings = {"model": reported.get("model_path")}
        settings |= {name: reported.get(theirs) for name, theirs in names.items()}
        return settings if reported.get("enable_memory_saver") else settings | {"left_out": ("sleep",)}


class LlamaCpp(Api):
    """llama.cpp's own endpoint.  Its KV has half precision: 1e-2 was seen between batches, and often nothing."""

    least_tolerance = 5e-2
    name = "llama.cpp"
    path = "/completion"
    metrics = Metrics(
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        progress=("llamacpp:tokens_predicted_total", "llamacpp:prompt_tokens_total"),
    )
    acts: ClassVar[Mapping[str, str]] = {}
    features = frozenset({"abort", "stop_text", "seed", "n"})

    def body(self, wanted: Wanted, model: str) -> dict[str, Any]:
        body = {"prompt": wanted.prompt, "n_predict": wanted.max_new_tokens, "temperature": 0.0, "stream": True}
        body |= {"n_probs": 2, "return_tokens": True, "cache_prompt": not wanted.is_cold}
        body |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        if wanted.sequences > 1:
            body["n_cmpl"] = wanted.sequences
        if wanted.stop_texts:
            body["stop"] = wanted.stop_texts
        return body if wanted.seed is None else body | {"temperature": 1.0, "seed": wanted.seed}

    def tokens(self, reply: Reply) -> list[Token]:
        tokens = []
        for entry in (entry for chunk in reply.chunks for entry in chunk.get("completion_probabilities") or ()):
            best = max(entry["top_logprobs"], key=lambda top: top["logprob"], default=None)
            named = (None, nan) if best is None else (best["id"], best["logprob"])
            tokens.append(Token(entry["id"], entry["logprob"], *named))
        return tokens

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        """The answer is generated again."""
        reply = Call(address).made("POST", self.path, self.body(wanted._replace(is_cold=True, sequences=1), model))
        return self.tokens(reply) if reply.status == OK else reply

    def learn(self, address: Address) -> dict[str, Any]:
        """No page shows whether the slots share one memory (`kv_unified`), so its room is that of one context."""
        page = object_at(address, "/props")
        context_len = (page.get("default_generation_settings") or {}).get("n_ctx")
        return {"max_context_len": context_len, "block_size": 1, "capacity": context_len}


class OpenAI(Api):
    """The completions of any other server: tokens are the characters of texts."""

    name = "openai"
    path = "/v1/completions"
    metrics = Metrics()
    acts: ClassVar[Mapping[str, str]] = {}
    features = frozenset({"abort", "stop_text", "seed"})
    has_ids = False

    def body(self, wanted: Wanted, model: str) -> dict[str, Any]:
        text = "".join(map(chr, wanted.prompt))
        body = {"model": model, "prompt": text, "max_tokens": wanted.max_new_tokens, "temperature": 0.0}
        if wanted.stop_texts:
            body["stop"] = wanted.stop_texts
        return (body if wanted.seed is None else body | {"temperature": 1.0, "seed": wanted.seed}) | {"stream": True}

    def tokens(self, reply: Reply) -> list[Token]:
        choices = [choice for chunk in reply.chunks for choice in chunk["choices"]]
        return [Token(ord(character)) for choice in choices for character in choice.get("text") or ""]

    def cold(self, address: Address, wanted: Wanted, answer: Sequence[int], model: str) -> list[Token] | Reply:
        """The answer is generated again, alone; the API cannot ask for an empty cache."""
        reply = Call(address).made("POST", self.path, self.body(wanted, model))
        return self.tokens(reply) if reply.status == OK else reply

    def learn(self, address: Address) -> dict[str, Any]:
        models = object_at(address, "/v1/models").get("data") or [{}]
        return {"model": models[0].get("id"), "first_token": ord("a"), "last_token": ord("z")}


ALL: Sequence[Api] = (Vllm(), Sglang(), LlamaCpp(), OpenAI())
APIS: Mapping[str, Api] = {api.name: api for api in ALL}


def api_of(name: str) -> Api:
    if name not in APIS:
        raise UsageError(f"--api: {name!r} is not one of {', '.join(APIS)}")
    return APIS[name]
