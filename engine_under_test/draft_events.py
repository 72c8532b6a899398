"""What the engine tells of guesses and of what the model said to them."""

from typing import NamedTuple


class Proposed(NamedTuple):
    """A launched pass computes draft tokens behind the last token of a request, too."""

    launch: int
    request_id: int
    drafts: tuple[int, ...]


class Verified(NamedTuple):
    """The model said `tokens`, one behind the last token and one behind each draft; so many drafts are accepted."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: tuple[int, ...]


DraftEvent = Proposed | Verified
