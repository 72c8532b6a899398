"""The dialects of servers over HTTP: paths and names of metrics, for the client and for our engine as a server."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
        "sglang:num_retracted_reqs",
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
