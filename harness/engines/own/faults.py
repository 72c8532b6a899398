"""The faults that a run of our engine can have."""

from fakes import catalog
from harness.core.faults import OF_CLIENTS

FAULTS = {**catalog.FAULTS, **OF_CLIENTS}
BETWEEN_ENGINES = catalog.BETWEEN_ENGINES
WITHIN_AN_ENGINE = tuple(fault for fault in FAULTS if fault not in BETWEEN_ENGINES)
