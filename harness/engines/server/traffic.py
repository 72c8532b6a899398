"""Random traffic for servers."""

from swarden.harness.search.traffic import EngineTraffic


class ServerTraffic(EngineTraffic):
    """That of every engine, with more requests between two steps: a step is a round, which waits for all answers."""

    one_step_of = 4
