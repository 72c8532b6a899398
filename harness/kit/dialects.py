"""The dialects of servers over HTTP, for the client and for our engine as a server: paths, bodies, streams, metrics."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

PromptT = TypeVar("PromptT", list[int], str)
Count = Annotated[int, msgspec.Meta(ge=1, le=16)]  # of answers
DATA, DONE = b"data:", b"[DONE]"  # before each object of a stream, and in place of one at its end
TOKEN_ID = "token_id:"  # before the id of a token that is named as a text

ACTS = FLUSH, PAUSE, RESUME, SLEEP, WAKE = "flush", "pause", "resume", "sleep", "wake"


class Metrics(NamedTuple):
    """The names of metrics, "" for none.  `progress` grow with the tokens that are computed."""

    running: str = ""
    waiting: str = ""
    usage: str = ""
    preemptions: str = ""
    progress: Sequence[str] = ()

    @property
    def at_rest(self) -> Sequence[str]:
        """Those that are zero while the server has no request; "" for one that it lacks."""
        return self.running, self.waiting, self.usage


class Dialect(NamedTuple):
    """The path of requests, the calls of ops (a path with its query), and the page that describes the server."""

    path: str = "/v1/completions"
    acts: Mapping[str, str] = {}
    metrics: Metrics = Metrics()
    page: str = "/v1/models"


def _acts(*paths: str) -> Mapping[str, str]:
    return dict(zip(ACTS, paths, strict=True))


VLLM = Dialect(
    acts=_acts("/reset_prefix_cache", "/pause?mode=keep&clear_cache=false", "/resume", "/sleep?level=1", "/wake_up"),
    metrics=Metrics(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        ("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
    ),
)
SGLANG = Dialect(
    "/generate",
    _acts(
        *("/flush_cache", "/pause_generation", "/continue_generation"),
        *("/release_memory_occupation", "/resume_memory_occupation"),
    ),
    Metrics(
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:token_usage",
        "sglang:num_retracted_requests_total",
        ("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
    ),
    "/get_server_info",
)
LLAMA_CPP = Dialect(
    "/completion",
    metrics=Metrics(
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        progress=("llamacpp:tokens_predicted_total", "llamacpp:prompt_tokens_total"),
    ),
    page="/props",
)
OPENAI = Dialect()


# --- the bodies of requests; a field that is None has the default of the server


class Completions(msgspec.Struct, Generic[PromptT], omit_defaults=True, kw_only=True):
    """The body of POST /v1/completions, with the additions of vLLM."""

    model: str | None = None
    prompt: PromptT
    max_tokens: int | None = None
    temperature: float | None = None
    logprobs: int | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    stream: bool | None = None
    n: Count = 1
    stop_token_ids: list[int] = []
    stop: list[str] = []
    priority: int = 0
    seed: int | None = None
    cache_salt: str = ""
    prompt_logprobs: int | None = None
    ignore_eos: bool = False


class SglangSampling(msgspec.Struct, omit_defaults=True, kw_only=True):
    max_new_tokens: int | None = None
    temperature: float | None = None
    sampling_seed: int | None = None
    n: Count = 1
    stop_token_ids: list[int] = []
    stop: list[str] = []
    ignore_eos: bool = False


class Generate(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The body of POST /generate."""

    input_ids: list[int]
    sampling_params: SglangSampling = msgspec.field(default_factory=SglangSampling)
    stream: bool | None = None
    return_logprob: bool = False
    top_logprobs_num: int = 0
    priority: int = 0
    logprob_start_len: int = -1
    extra_key: str = ""


class LlamaCompletion(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The body of POST /completion."""

    prompt: list[int]
    n_predict: int | None = None
    temperature: float | None = None
    stream: bool | None = None
    n_probs: int = 0
    return_tokens: bool = False
    cache_prompt: bool | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    n_cmpl: Count = 1
    stop: list[str] = []
    seed: int | None = None
    ignore_eos: bool = False


Body = Completions[list[int]] | Completions[str] | Generate | LlamaCompletion
