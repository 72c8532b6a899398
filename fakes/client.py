"""The stand-in for whoever sent the requests and reads what is streamed to them."""

from fakes.faults import FaultPlan


class FakeClient:
    """Reads everything that is streamed, but for the armed fault:

    client.gone  it hangs up on a request instead of reading on; the server must abort that request

    Each time that something is streamed for a request which goes on is a crossing.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan

    def reads(self) -> bool:
        """Does it take what came for one request?  False: it has hung up."""
        return not self._plan.fires("client.gone")
