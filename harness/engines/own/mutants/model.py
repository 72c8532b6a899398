"""Bugs of a model over pages: the attention mask, and the slots of keys and values."""

from swarden.harness.core.mutant import Hunk, Mutants
from swarden.harness.engines.own.mutants.window import FRONTIER, WINDOW
from swarden.harness.search.mutants.unplanted import DetectedByTest

MUTANTS = Mutants(model="tiny-gemma3")
bug = MUTANTS.bug

PAGED = "swarden.engine_under_test.model.paged"
MASK = "mask = visible(queries, keys, pool.window)"


bug(
    "S110",
    "made here: a Hugging Face window read as SGLang's, which leaves the token itself out: it sees one token too many",
    at=f"{PAGED}:_group",
    healthy=MASK,
    broken="mask = visible(queries, keys, pool.window and pool.window + 1)",
    caught_by=("logits_match_uncached_model", "outputs_match_uncached_model"),
)

bug(
    "S111",
    "made here: SGLang's window, which leaves the token itself out, read as Hugging Face's: it sees one too few",
    at=f"{PAGED}:_group",
    healthy=MASK,
    broken="mask = visible(queries, keys, pool.window and pool.window - 1)",
    caught_by=("logits_match_uncached_model",),
)

bug(
    "S112",
    "made here: attention without the sinks that the model was trained with",
    at="swarden.engine_under_test.model.attention:explicit_attention",
    healthy="if scoring.sinks is not None:",
    broken="if False:",
    caught_by=("logits_match_uncached_model",),
    model="tiny-gpt-oss",
)

bug(
    "S113",
    "made here: a pass that begins at the start of a page writes that page's tokens to the page before",
    at=f"{PAGED}:_slots",
    healthy="slot = pages[span.begin + page] * page_size - begin",
    broken="slot = pages[span.begin + page - (begin == start and page > 0)] * page_size - begin",
    caught_by=("logits_match_uncached_model", "outputs_match_uncached_model"),
)

bug(
    "S114",
    "made here: a windowed page is freed while one more token reads it, so that token reads poison",
    at=f"{WINDOW}:window_frontier",
    healthy=FRONTIER,
    broken=FRONTIER.replace("position - ", "position + 1 - "),
    caught_by=(
        "logits_match_uncached_model",
        "units_in_flight_are_pinned",
        "frontiers_spare_the_window",
        "reservations_match_planner",
    ),
)

bug(
    "S115",
    "made here: the next token is sampled at the position before the last computed one",
    at="swarden.engine_under_test.model.runner:_sampled",
    healthy="for row in range(end - entry.num_samples, end)",
    broken="for end in [max(entry.num_samples, end - 1)] for row in range(end - entry.num_samples, end)",
    caught_by=("outputs_match_uncached_model",),
)

THETAS_ARE_SWAPPED = DetectedByTest(
    id="S116",
    source="made here: sliding layers use the rotary embedding of full attention layers, and the other way round",
    hunks=(
        Hunk(
            "swarden.engine_under_test.model.decoder:Decoder.hidden",
            before="for table in self._rotations]",
            after="for table in self._rotations[::-1]]",
        ),
    ),
    detected_by="tests/quality/test_model_mutants.py",
)
