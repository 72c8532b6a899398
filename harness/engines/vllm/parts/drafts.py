"""Speculative decoding: passes that compute drafts of the next tokens, too.

Real: slots ahead, the dropped last block of a hit (`eagle`), the next pass of the `AsyncScheduler` scheduled as if all
drafts were right.
Stand-in: the proposer: the operation `accept` says how many drafts are right.
Shows: writes beyond the allocation, KV of rejected drafts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Accept, name_of
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.layers import ALIGN
from swarden.harness.engines.vllm.parts.part import Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.kit.launch import Line, count_in
from swarden.harness.kit.part import Part
from swarden.harness.kit.settings import Drawn, OneOf, PartOf, drawn, replaced, within

NGRAM, EAGLE = "ngram", "eagle"
NGRAM_GPU = "ngram_gpu"  # the n-grams that a release combines with asynchronous scheduling
USUAL_LEN = 3  # of a launch line that does not say it
SECOND_NGRAMS = "second_runner_ngrams"  # the feature of a release
NO_EAGLE: dict[str, Sequence[Any]] = {"drafter": (NGRAM,)}


class Drafts(VllmPart, frozen=True):
    """`draft_len` enables speculative decoding with as many drafts, of the kind `drafter`.

    "ngram" needs no memory, "eagle" takes slots ahead and recomputes the last block of a cached prefix.
    """

    draft_len: Annotated[int, within(1, 16)] | None = None
    drafter: Annotated[str, OneOf((NGRAM, EAGLE)), PartOf("draft_len"), Drawn((NGRAM, EAGLE))] = NGRAM

    server_need = "drafts"
    ops = (name_of(Accept),)

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """A draft model is driven as EAGLE; "ngram" and "suffix" have none."""
        option = "speculative-config"
        if not (values := line.mapping(option)):
            return {}
        drafter = NGRAM if values.get("method") in (NGRAM, NGRAM_GPU, "suffix") else EAGLE
        if drafter == EAGLE:
            line.leave_out("the KV of the draft model")
        return {"draft_len": count_in(line, option, values, "num_speculative_tokens", USUAL_LEN), "drafter": drafter}

    @property
    def count(self) -> int:
        return self.draft_len or 0

    @property
    def lookahead_len(self) -> int:
        """The tokens beyond the drafts for which blocks are allocated."""
        return self.count if self.drafter == EAGLE else 0

    def check(self, config: VllmConfig) -> None:
        config.check_chunk(self.count + 1, f"more than draft_len {self.draft_len}")
        if config.state_mode == ALIGN and self.count >= config.shape.page_size:
            raise InvalidConfig(f"draft_len is {self.draft_len}, want less than block_size with state_groups")

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        if self.drafter == NGRAM and config.second_runner and not release.has(SECOND_NGRAMS):
            raise InvalidConfig(f"second_runner is true with ngram drafts, want false for vllm {release.text}")

    def limits(self, config: VllmConfig) -> Mapping[str, Any]:
        return {"draft_len": self.count, "draft_row_len": self.lookahead_len}

    def method(self, config: VllmConfig) -> str:
        return NGRAM_GPU if config.most_launches > 1 and self.drafter == NGRAM else self.drafter

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        """The SpeculativeConfig is checked as one of n-grams, and then gets its method, because Eagle needs a model."""
        speculative = release.make(
            "SpeculativeConfig",
            method=NGRAM,
            num_speculative_tokens=self.count,
            prompt_lookup_max=2,
            target_model_config=release.model_config,
            target_parallel_config=release.make("ParallelConfig"),
        )
        speculative.method = self.method(config)
        return {"VllmConfig": {"speculative_config": speculative}, "MambaSpec": {"num_speculative_blocks": self.count}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        engine.drafts = engine.runner.device.script
        return ()


def with_drafts(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with speculative decoding."""
    draft_len = draw.one_of((3, 1, 5))
    config = replaced(
        config,
        **config.for_drafts(),
        draft_len=min(draft_len, config.shape.page_size - 1) or None if config.state_mode == ALIGN else draft_len,
        **drawn(draw, Drafts),
    )
    needs_eagle = config.second_runner and not has(SECOND_NGRAMS)
    return replaced(config, drafter=EAGLE) if needs_eagle else config
