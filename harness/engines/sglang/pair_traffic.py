"""Random traffic for a prefill and a decode scheduler, and for the link between them."""

from collections.abc import Sequence

import msgspec

from swarden.harness.engines.sglang.config import DECODE, PREFILL, SglangConfig, least_swa_pages, plain_config
from swarden.harness.engines.sglang.link import FAULTS
from swarden.harness.search.pairs import PREFILL_SIDE, PairTraffic
from swarden.harness.search.traffic import OUTPUT_LENS, HypothesisDraw

MOST_RESERVED_PAGES = 4


class SglangPairs(PairTraffic):
    """The prefill side moves the KV, so it has the faults of the link."""

    link_faults = tuple(FAULTS)

    def sides(self, draw: HypothesisDraw) -> Sequence[SglangConfig]:
        """A prefill and a decode configuration: one model and the same switches, but other pools and batches.

        The decode side has pages for a whole request, its estimated output and its reservation, with pages of one token
        also in the windowed pool: a release never admits a larger request, and all that follow wait behind it.
        """
        prefill = msgspec.structs.replace(plain_config(draw), role=PREFILL, preemption_threshold=None)
        page = prefill.page_size
        beside = -(-max(OUTPUT_LENS[-1]) // page) + MOST_RESERVED_PAGES + 1
        least = least_swa_pages(page, prefill.sliding_window, prefill.chunk_len) + beside
        full = prefill.full_pages + beside * draw.one_of((1, 2, 4))
        decode = msgspec.structs.replace(
            prefill,
            role=DECODE,
            full_pages=full,
            swa_pages=full if page == 1 else max(least, draw.one_of((full, least))),
            max_running_requests=draw.one_of((4, 2, 8, 1)),
            reserved_decode_tokens=page * draw.one_of((1, 2, MOST_RESERVED_PAGES)),
            overlap=draw.one_of((False, True)),
        )
        return prefill, decode

    def capacities(self) -> Sequence[int]:
        config = self.configs[PREFILL_SIDE]
        pools = (config.swa_pages, config.full_pages)
        return *[units * config.page_size for units in pools], config.max_context_len // 2
