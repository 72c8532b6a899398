"""All fakes and their faults."""

from fakes.backing import FakeBacking
from fakes.host import UnsteadyHostStore
from fakes.link import UnsteadyLink
from fakes.unsteady import UnsteadyForward

FAKES = (FakeBacking, UnsteadyForward, UnsteadyHostStore, UnsteadyLink)
BETWEEN_ENGINES = tuple(UnsteadyLink.FAULTS)  # only an engine with a link has these
FAULTS: dict[str, str] = {name: effect for fake in FAKES for name, effect in fake.FAULTS.items()}  # name to effect
