"""All fakes, and with them every fault there is."""

from fakes.backing import FakeBacking
from fakes.client import FakeClient
from fakes.clock import FakeClock
from fakes.faults import faults_of
from fakes.forward import FakeForward
from fakes.host import UnsteadyHostStore
from fakes.link import UnsteadyLink
from fakes.unsteady import UnsteadyForward

FAKES = (FakeBacking, FakeClient, FakeClock, FakeForward, UnsteadyForward, UnsteadyHostStore, UnsteadyLink)
BETWEEN_ENGINES = tuple(faults_of(UnsteadyLink))  # what only an engine with another side can have
FAULTS: dict[str, str] = {name: effect for fake in FAKES for name, effect in faults_of(fake).items()}  # with its effect
