"""The faults that a run of our engine can have."""

from swarden.fakes import catalog
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.target import Tier

FAULTS = {**catalog.FAULTS, **CLIENT_FAULTS}
BETWEEN_ENGINES = catalog.BETWEEN_ENGINES
HOST = Tier("host.slow", ("host.fails", "host.torn"))
ON_THE_HOST = tuple(fault for fault in FAULTS if fault.startswith("host."))
