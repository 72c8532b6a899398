"""The APIs in which the front answers: OpenAI's with vLLM's additions, SGLang's, and llama.cpp's."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.front.loop import Asked, Scored, Served, text_of
from swarden.harness.kit import dialects
from swarden.harness.kit.dialects import LLAMA_CPP, SGLANG, TOKEN_ID, VLLM

COLD = count(1 << 40)  # the namespaces of requests that read no cached prefix


class Completions(dialects.Completions[list[int]]):
    """A chunk has the new tokens; the last one has the finish reason."""

    def asked(self, eos: Sequence[int]) -> Sequence[Asked]:
        stop = (*self.stop_token_ids, *(() if self.ignore_eos else eos))
        wants_logits = self.logprobs is not None or self.prompt_logprobs is not None
        namespace = namespace_of(self.cache_salt) if self.prompt_logprobs is None else next(COLD)
        limit, temperature = _given(self.max_tokens, 16), _given(self.temperature, 1.0)
        sampling = SamplingParams(limit, stop, temperature, seed=self.seed, return_logits=wants_logits)
        priority = -self.priority  # the lowest first, as in vLLM
        return _several(Asked(self.prompt, sampling, namespace, priority, self.stop), self.n)

    def chunk(self, index: int, served: Served, new: Sequence[Scored]) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": served.ended or None}
        choice["token_ids"] = [scored.token for scored in new]
        choice["text"] = text_of(choice["token_ids"])
        if self.logprobs is not None:
            tops = [{f"{TOKEN_ID}{token}": value for token, value in _tops(scored).items()} for scored in new]
            choice["logprobs"] = {"token_logprobs": [scored.logprob for scored in new], "top_logprobs": tops}
        if self.prompt_logprobs is not None and served.ended:
            prompt = [_tops(served.scores[place]) for place in range(1, len(served.asked.tokens))]
            shown = [{str(token): {"logprob": value} for token, value in tops.items()} for tops in prompt]
            choice["prompt_logprobs"] = [None, *shown]
        return {"object": "text_completion", "choices": [choice]}


class Generate(dialects.Generate):
    def asked(self, eos: Sequence[int]) -> Sequence[Asked]:
        want = self.sampling_params
        stop = (*want.stop_token_ids, *(() if want.ignore_eos else eos))
        namespace = next(COLD) if self.return_logprob and self.logprob_start_len >= 0 else namespace_of(self.extra_key)
        seed, scores = want.sampling_seed, self.return_logprob
        limit, temperature = _given(want.max_new_tokens, 128), _given(want.temperature, 1.0)
        sampling = SamplingParams(limit, stop, temperature, seed=seed, return_logits=scores)
        return _several(Asked(self.input_ids, sampling, namespace, self.priority, want.stop), want.n)

    def chunk(self, index: int, served: Served, _new: Sequence[Scored]) -> dict[str, Any]:
        """Each object has the whole answer so far."""
        first, end = len(served.asked.tokens), len(served.known)
        meta: dict[str, Any] = {"prompt_tokens": first, "completion_tokens": end - first}
        meta["finish_reason"] = {"type": served.ended} if served.ended else None
        if self.return_logprob:
            outputs = [served.scores[place] for place in range(first, end) if place in served.scores]
            begin = first if self.logprob_start_len < 0 else self.logprob_start_len
            inputs = [served.scores[place] for place in range(begin + 1, first) if place in served.scores]
            for name, scores in (("input", inputs), ("output", outputs)):
                meta[f"{name}_token_logprobs"] = [(scored.logprob, scored.token, None) for scored in scores]
                meta[f"{name}_top_logprobs"] = [[(scored.best_logprob, scored.best, None)] for scored in scores]
            if begin < first:
                meta["input_token_logprobs"].insert(0, (None, served.known[begin], None))
                meta["input_top_logprobs"].insert(0, None)
        answer = served.known[first:]
        return {"text": text_of(answer), "output_ids": answer, "meta_info": meta, "index": index}


class LlamaCompletion(dialects.LlamaCompletion):
    def asked(self, eos: Sequence[int]) -> Sequence[Asked]:
        stop = () if self.ignore_eos else eos
        namespace, scores = next(COLD) if self.cache_prompt is False else 0, self.n_probs > 0
        limit, temperature = _given(self.n_predict, 128), _given(self.temperature, 0.8)
        sampling = SamplingParams(limit, stop, temperature, seed=self.seed, return_logits=scores)
        return _several(Asked(self.prompt, sampling, namespace, stop_texts=self.stop), self.n_cmpl)

    def chunk(self, index: int, served: Served, new: Sequence[Scored]) -> dict[str, Any]:
        tokens = [scored.token for scored in new]
        answer: dict[str, Any] = {"content": text_of(tokens), "tokens": tokens, "stop": bool(served.ended)}
        answer["index"] = index
        if self.n_probs:
            answer["completion_probabilities"] = [
                {
                    "id": scored.token,
                    "logprob": scored.logprob,
                    "top_logprobs": [{"id": token, "logprob": value} for token, value in _tops(scored).items()],
                }
                for scored in new
            ]
        return answer


Body = Completions | Generate | LlamaCompletion


def whole(body: Body, all_served: Sequence[Served]) -> dict[str, Any]:
    """The object of the ended answers."""
    chunks = []
    for index, served in enumerate(all_served):
        chunks.append(body.chunk(index, served, served.tokens_from(len(served.asked.tokens))))
    if isinstance(body, Completions):
        return {"object": "text_completion", "choices": [choice for chunk in chunks for choice in chunk["choices"]]}
    return chunks[0]


def namespace_of(salt: str) -> int:
    return int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=4).digest()) if salt else 0


ValueT = TypeVar("ValueT")


def _given(value: ValueT | None, default: ValueT) -> ValueT:
    return default if value is None else value


def _several(asked: Asked, count: int) -> Sequence[Asked]:
    """The requests for so many answers, each with a seed of its own."""
    sampling, seed = asked.sampling, asked.sampling.seed
    seeds = [None if seed is None else seed + index for index in range(count)]
    return [asked._replace(sampling=replace(sampling, seed=seed)) for seed in seeds]


def _tops(scored: Scored) -> Mapping[int, float]:
    return {scored.token: scored.logprob, scored.best: scored.best_logprob}


PATHS: Mapping[str, type[Body]] = {VLLM.path: Completions, SGLANG.path: Generate, LLAMA_CPP.path: LlamaCompletion}
