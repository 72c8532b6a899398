"""All fakes, and with them every fault there is."""

from fakes.backing import FakeBacking
from fakes.client import FakeClient
from fakes.clock import FakeClock
from fakes.faults import faults_of
from fakes.forward import FakeForward
from fakes.host import UnsteadyHostStore
from fakes.unsteady import UnsteadyForward

FAKES = (FakeBacking, FakeClient, FakeClock, FakeForward, UnsteadyForward, UnsteadyHostStore)
FAULTS: dict[str, str] = {name: effect for fake in FAKES for name, effect in faults_of(fake).items()}  # with its effect
