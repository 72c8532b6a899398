"""Published prefixes that cannot be matched."""

from swarden.invariants.contracts.publishing import PublishingCode, published_prefixes_match
from swarden.invariants.events import Inserted, Tombstoned
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during, healthy, nodes, records

PUBLISHED, REQUEST = Inserted(1, 8, 0, 16), Ref("request", 1)
NOT_MATCHED = found(REQUEST, PublishingCode.NOT_MATCHED, end=16, length=0, want=16)

CASES = [
    healthy(
        published_prefixes_match,
        during(PUBLISHED, Tombstoned(2, "swa", True), nodes=nodes(2, units=((3, 4), (0, 0)))),
        "unpredictable-after-an-eviction",
    ),
    broken(
        published_prefixes_match,
        "tombstone-in-the-tail",
        during(Inserted(1, 8, 16, 16), nodes=nodes(2, units=((3, 4), (0, 0)), live=(True, False))),
        NOT_MATCHED,
    ),
    broken(
        published_prefixes_match,
        "request-shares-less",
        during(PUBLISHED, records=records(protected_len=8, node=3)),
        found(REQUEST, PublishingCode.SHARES_OTHER_LEN, end=16, protected_len=8),
    ),
]
