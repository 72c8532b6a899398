"""The faults that a run of our engine can have."""

from swarden.fakes import catalog
from swarden.harness.core.faults import CLIENT_FAULTS

FAULTS = {**catalog.FAULTS, **CLIENT_FAULTS}
BETWEEN_ENGINES = catalog.BETWEEN_ENGINES
ON_THE_HOST = tuple(fault for fault in FAULTS if fault.startswith("host."))

# Perturbations: no engine survives them; the level content of the strict check must notice each.
USED, CACHED, ON_HOST, ROW, PEER = "page.used", "page.cached", "page.on_host", "row.entry", "peer.entry"
COPIED, SENT = "copy.page", "link.page"
PERTURBATIONS = {
    USED: "one bit of a page is flipped that the next pass of a request reads",
    CACHED: "one bit of a cached page is flipped that no request uses",
    ON_HOST: "one bit of a page on the host is flipped",
    ROW: "an entry of a row names another page",
    PEER: "a page has another peer",
    COPIED: "one bit of a page is flipped while it is copied to or from the host",
    SENT: "one bit of a page that arrives from the other engine is flipped, or two of its slots are exchanged",
}
