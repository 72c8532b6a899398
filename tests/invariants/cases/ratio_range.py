"""New-token ratios out of range."""

from swarden.invariants.contracts.ratio_range import MILLION, RatioRangeCode, new_token_ratio_is_in_range
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import after, broken, counters

RATIO = Ref("new-token ratio")

CASES = [
    broken(
        new_token_ratio_is_in_range,
        "below-the-floor",
        after(counters=counters(new_token_ratio=97_999)),
        found(RATIO, RatioRangeCode.BELOW_FLOOR, ratio=97_999, floor=98_000),
    ),
    broken(
        new_token_ratio_is_in_range,
        "above-one",
        after(counters=counters(new_token_ratio=MILLION + 1)),
        found(RATIO, RatioRangeCode.ABOVE_ONE, ratio=MILLION + 1),
    ),
]
