"""Bugs of sessions and of speculation, which are to come."""

from functools import partial

from harness.mutants.unplanted import Waiting

in_sessions = partial(Waiting, capability="sessions")

TAIL_IS_OVERWRITTEN = in_sessions(
    "B61", "sglang pull 22862: the room behind the last token was overwritten by the next turn's, some tokens a turn"
)
OVERSHOOT_IS_NOT_TRIMMED = Waiting(
    "B62", "sglang pull 22897: tokens drafted beyond the last one were kept with their KV", "speculation"
)
FRONTIER_OUTLIVES_A_TRIM = in_sessions(
    "B63", "sglang pull 22900: a trim left the frontier beyond the room, and the pages between were never freed"
)
ABORTED_TURN_DESTROYS_ITS_SESSION = in_sessions(
    "B64", "sglang pull 22273: a turn that was too long was aborted and put its one token in the session's place"
)
SESSION_IS_COUNTED_TWICE = in_sessions(
    "B65", "sglang pulls 22213 and 22753: a session and the turn that borrowed its KV were both counted"
)
COMMITTED_BEYOND_THE_ROOM = in_sessions(
    "B67", "sglang pull 28754: committed ran ahead of allocated, so the next page was one that another had"
)
SESSIONS_WITHOUT_BOUND = in_sessions(
    "B69", "sglang issues 27024 and 27025: idle sessions held the pool without bound, until nobody could go on"
)
STATE_REFERENCES_STAY_WITH_THE_REQUEST = Waiting(
    "B71",
    "sglang release 0.5.15: references to recurrent state stayed with the request after a save",
    "recurrent state",
)
