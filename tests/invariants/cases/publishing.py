"""Publications that cannot be matched."""

from invariants.events import Demoted, Inserted, Tombstoned
from invariants.publishing import inserted_prefixes_match
from tests.invariants.builders import broken, during, healthy, nodes, records

CASES = [
    healthy(inserted_prefixes_match, during(Inserted(1, 8, 0, 16))),
    healthy(
        inserted_prefixes_match,
        during(Inserted(1, 8, 0, 16), records=()),
        "of-one-that-ended-with-it",
    ),
    healthy(
        inserted_prefixes_match,
        during(Inserted(1, 8, 0, 16), Tombstoned(2, "swa", True), nodes=nodes(2, units=((3, 4), (0, 0)))),
        "not-judged-once-something-has-gone",
    ),
    healthy(
        inserted_prefixes_match,
        during(Inserted(1, 8, 0, 16), Demoted(2, "full", True), nodes=nodes(2, units=((0, 0), (0, 0)))),
        "not-judged-once-something-was-left-to-the-host",
    ),
    broken(
        inserted_prefixes_match,
        "dead-tail",
        during(Inserted(1, 8, 16, 16), nodes=nodes(2, units=((3, 4), (0, 0)), live=(True, False))),
        ("request r1", "published [0, 16), yet only 0 of 16 tokens match"),
    ),
    broken(
        inserted_prefixes_match,
        "dead-tail-of-one-that-ended",
        during(Inserted(1, 8, 16, 16), nodes=nodes(2, units=((3, 4), (0, 0))), records=()),
        ("request r1", "published [0, 16), yet only 0 of 16 tokens match"),
    ),
    broken(
        inserted_prefixes_match,
        "shares-less",
        during(Inserted(1, 8, 0, 16), records=records(protected_len=8, node=3)),
        ("request r1", "published [0, 16), yet shares 8 tokens"),
    ),
]
