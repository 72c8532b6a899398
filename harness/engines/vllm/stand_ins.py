"""The packages that vLLM imports and that are not needed: none of them touches KV memory."""

REQUESTS = "texts, images and tools are turned into tokens by the frontend, which is not started"
SERVER = "the server is not started"
WIRE = "processes and metrics: the engine core runs in this process"
OUTPUT = "grammars of structured output are stand-ins"
LMCACHE = "storages behind the CPU memory of LMCache, compression and profiles"
MODEL = "checkpoints and GPU kernels: the model is a stand-in"

ABSENT = {
    **dict.fromkeys(("openai", "openai_harmony", "anthropic", "mcp", "mistral_common"), REQUESTS),
    **dict.fromkeys(("partial_json_parser", "PIL", "cv2", "pybase64", "sentencepiece", "tiktoken"), REQUESTS),
    **dict.fromkeys(("torchvision", "requests", "httpx"), REQUESTS),
    **dict.fromkeys(("fastapi", "starlette", "uvicorn", "uvloop", "aiohttp", "urllib3", "ijson"), SERVER),
    **dict.fromkeys(("zmq", "cloudpickle", "cachetools", "prometheus_client", "opentelemetry", "setproctitle"), WIRE),
    **dict.fromkeys(("xgrammar", "llguidance", "lark", "outlines_core"), OUTPUT),
    **dict.fromkeys(("gguf", "cpuinfo", "einops", "blake3", "depyf", "compressed_tensors"), MODEL),
    **dict.fromkeys(("nvtx", "aiofile", "aiofiles", "redis", "grpc", "awscrt", "cryptography", "numba"), LMCACHE),
}
