"""All fakes and their faults."""

from swarden.fakes.backing import FakeBacking
from swarden.fakes.host import UnsteadyHostStore
from swarden.fakes.link import UnsteadyLink
from swarden.fakes.unsteady import UnsteadyForward

FAKES = (FakeBacking, UnsteadyForward, UnsteadyHostStore, UnsteadyLink)
BETWEEN_ENGINES = tuple(UnsteadyLink.FAULTS)  # only an engine with a link has these
FAULTS: dict[str, str] = {name: effect for fake in FAKES for name, effect in fake.FAULTS.items()}  # name to effect
