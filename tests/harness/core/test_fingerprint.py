"""A fingerprint says what is wrong, and nothing that differs from run to run."""

import pytest

from engine_under_test.config import EngineConfig
from harness.core.fingerprint import fingerprint, fingerprint_of_error, fingerprints, slug
from invariants.violation import prose

EQUATION = (
    "capacity 24 = free 4 + cached 13 (evictable 9, protected 4) + uncached 8 (request r3 6, request r4 2)"
    " + fenced 2: one too many"
)

CASES = [
    ("leak", "swa page 17", "owned by nobody", "claim/swa page/nobody"),
    ("double free", "swa page 17", "owned by free and free", "claim/swa page/free"),
    ("use after free", "swa page 17", "owned by free and tree n7", "claim/swa page/free+tree"),
    ("two owners", "rows row 2", "owned by request r12 and request r3", "claim/rows row/request"),
    ("a neighbour", "full page 2", "owned by pressure and session s1", "claim/full page/pressure+session"),
    ("several units", "swa pages 3, 5, 17", "still fenced, yet launch 4 has completed", "claim/swa page"),
    ("fenced", "swa page 3", "taken by request r3, yet it waits behind a fence", "claim/swa page/fence+request"),
    ("equation", "swa", EQUATION, "claim/swa"),
    ("owner as the subject", "request r3", "has row 4, yet it is in no queue", "claim/request"),
    ("node", "node n7", "gave up its swa pages, yet node n3 is used last at 12", "claim/node"),
    ("address", "block 0x7f3a", "owned by free and request r1", "claim/block/free+request"),
    ("no subject", "17", "3 too many", "claim"),
]


@pytest.mark.parametrize(("subject", "detail", "name"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_violation_has_a_name_without_numbers(subject, detail, name):
    assert fingerprint(prose("claim", subject, detail)) == name


def test_the_violations_of_a_transition_are_named_once_and_in_order():
    violations = [
        prose("peers_are_live", "full page 3", "its peer swa page 9 is free"),
        prose("unit_has_one_owner", "swa page 9", "owned by free and tree n7"),
        prose("unit_has_one_owner", "swa page 4", "owned by free and tree n12"),
    ]

    assert fingerprints(violations) == ["peers_are_live/full page/free", "unit_has_one_owner/swa page/free+tree"]


ENGINE = """
def plain(): 1 / 0
def comprehended(): return [1 / zero for zero in (0,)]
def called(): return (lambda: 1 / 0)()
def calling(back): back()
class Ledger:
    def free(self): plain()
    def take(self): raise KeyError(17)
"""
TOY: dict[str, object] = {"__name__": "toy.pools.ledger"}
exec(ENGINE, TOY)


def raised(statement: str, **names: object) -> BaseException:
    with pytest.raises((ZeroDivisionError, KeyError)) as caught:
        eval(statement, TOY | names)
    return caught.value


def fail() -> None:
    raise KeyError(3)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("plain()", "ZeroDivisionError/pools.ledger.plain"),
        ("Ledger().free()", "ZeroDivisionError/pools.ledger.plain"),
        ("Ledger().take()", "KeyError/pools.ledger.Ledger.take"),
        ("comprehended()", "ZeroDivisionError/pools.ledger.comprehended"),
        ("called()", "ZeroDivisionError/pools.ledger.called"),
        ("calling(fail)", "KeyError/pools.ledger.calling"),
    ],
)
def test_an_error_is_named_by_the_innermost_function_of_the_engine(statement, name):
    """However deep in something else it was raised."""
    assert fingerprint_of_error(raised(statement, fail=fail), package="toy") == name


def test_an_error_outside_of_the_engine_is_named_by_where_it_was_raised():
    assert (
        fingerprint_of_error(raised("Ledger().take()"), "engine_under_test") == "KeyError/toy.pools.ledger.Ledger.take"
    )


def test_an_error_that_was_not_raised_is_named_by_its_type():
    assert fingerprint_of_error(ValueError("17"), "engine_under_test") == "ValueError"


def test_our_engine_is_the_engine():
    with pytest.raises(ValueError, match="page_size") as caught:
        EngineConfig(page_size=3)

    assert fingerprint_of_error(caught.value, "engine_under_test") == "ConfigError/config.EngineConfig._check_choices"


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("unit_has_one_owner/swa page/free+tree", "unit_has_one_owner-swa-page-free+tree"),
        ("KeyError/pools.ledger.Ledger.take", "KeyError-pools.ledger.Ledger.take"),
        ("../a\n" + "b" * 200, "a-" + "b" * 115),
    ],
)
def test_a_fingerprint_makes_a_file_name(name, file_name):
    assert slug(name) == file_name
