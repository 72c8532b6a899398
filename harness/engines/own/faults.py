"""The faults that a run of our engine can have: those of all fakes, and those of a client."""

from swarden.fakes.backing import FakeBacking
from swarden.fakes.host import UnsteadyHostStore
from swarden.fakes.link import UnsteadyLink
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.target import Tier

BETWEEN_ENGINES = tuple(UnsteadyLink.FAULTS)  # only an engine with a link has these
FAULTS = {  # name to effect
    **FakeBacking.FAULTS,
    **UnsteadyForward.FAULTS,
    **UnsteadyHostStore.FAULTS,
    **UnsteadyLink.FAULTS,
    **CLIENT_FAULTS,
}
HOST = Tier("host.slow", ("host.fails", "host.torn"))
ON_THE_HOST = tuple(fault for fault in FAULTS if fault.startswith("host."))
