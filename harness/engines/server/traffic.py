"""Random traffic for servers."""

from swarden.harness.search.traffic.traffic import EngineTraffic


class ServerTraffic(EngineTraffic):
    """That of every engine, with more requests between two steps, and longer runs.

    A step is a round, which waits for all answers, and a run may begin with a new server.
    """

    one_step_of = 4
    draws_of_rule = (1, 4, 8)
