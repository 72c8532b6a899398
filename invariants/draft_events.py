"""What happens to draft tokens, in the words of the invariants."""

from collections.abc import Sequence
from typing import NamedTuple


class Proposed(NamedTuple):
    """A launched pass computes draft tokens behind the last token of a request, too."""

    launch: int
    request_id: int
    drafts: Sequence[int]


class Verified(NamedTuple):
    """The model said `tokens`, one behind the last token and one behind each draft; so many drafts are accepted."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: Sequence[int]


DraftEvent = Proposed | Verified
