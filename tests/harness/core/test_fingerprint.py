"""A fingerprint names the kind of failure, without values that differ between runs."""

from typing import Any

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.fingerprint import fingerprint, fingerprint_of_error, fingerprints, slug
from swarden.invariants.events import Owner
from swarden.invariants.view import FREE
from swarden.invariants.violation import Code, Ref, Violation

PAGE, REQUEST, NODE = Ref("page", 17, "swa"), Ref("request", 3), Ref("node", 7)
R3, N7 = Owner("request", 3), Owner("tree", 7)


class Broken(Code):
    SHARED = "shared"


CASES = [
    ("no owner", PAGE, {}, "claim/swa page/shared"),
    ("owners", PAGE, {"owners": (FREE, N7)}, "claim/swa page/shared"),
    ("one owner", Ref("row", 2, "rows"), {"owner": R3}, "claim/rows row/shared"),
    ("numbers", PAGE, {"count": 17, "pool": "swa"}, "claim/swa page/shared"),
    ("other things", REQUEST, {"node": NODE}, "claim/request/shared"),
    ("a pool", Ref("pool", pool="swa"), {}, "claim/swa pool/shared"),
]


@pytest.mark.parametrize(("subject", "values", "name"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fingerprint_of_a_violation_has_no_numbers(subject, values, name):
    assert fingerprint(Violation("claim", subject, Broken.SHARED, values)) == name


def test_fingerprints_of_a_transition_are_distinct_and_in_order():
    violations = [
        Violation("peers_are_live", REQUEST, Broken.SHARED, {}),
        *(Violation("unit_has_one_owner", Ref("page", page, "swa"), Broken.SHARED, {}) for page in (9, 4)),
    ]

    assert fingerprints(violations) == ["peers_are_live/request/shared", "unit_has_one_owner/swa page/shared"]


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
        ("plain()", "ZeroDivisionError/pools.ledger.plain/pools.ledger.<module>"),
        ("Ledger().free()", "ZeroDivisionError/pools.ledger.plain/pools.ledger.Ledger.free"),
        ("Ledger().take()", "KeyError/pools.ledger.Ledger.take/pools.ledger.<module>"),
        ("comprehended()", "ZeroDivisionError/pools.ledger.comprehended/pools.ledger.<module>"),
        ("called()", "ZeroDivisionError/pools.ledger.called/pools.ledger.<module>"),
        ("calling(fail)", "KeyError/pools.ledger.calling/pools.ledger.<module>"),
    ],
)
def test_fingerprint_of_an_error_names_the_innermost_function_of_the_engine_and_its_caller(statement, name):
    """Inner functions outside of the engine are ignored."""
    assert fingerprint_of_error(raised(statement, fail=fail), package="toy") == name


@pytest.mark.parametrize(
    ("core", "name"),
    [
        ("toy.pools", "ZeroDivisionError/pools.ledger.calling/pools.ledger.<module>"),
        ("toy.scheduler", "ZeroDivisionError/models.plain/pools.ledger.calling"),
    ],
    ids=["raised-below-the-core", "raised-outside"],
)
def test_fingerprint_of_an_error_leaves_out_functions_outside_of_the_core(core, name):
    model: dict[str, Any] = {"__name__": "toy.models"}
    exec(ENGINE, model)

    assert fingerprint_of_error(raised("calling(forward)", forward=model["plain"]), "toy", core) == name


def test_fingerprint_of_an_error_outside_of_the_engine_names_the_innermost_function():
    assert (
        fingerprint_of_error(raised("Ledger().take()"), "engine_under_test") == "KeyError/toy.pools.ledger.Ledger.take"
    )


def test_fingerprint_of_an_error_that_was_not_raised_is_its_type():
    assert fingerprint_of_error(ValueError("17"), "engine_under_test") == "ValueError"


def test_fingerprint_of_an_error_of_our_engine_omits_the_package():
    with pytest.raises(ValueError, match="page_size") as caught:
        EngineConfig(page_size=3)

    assert fingerprint_of_error(caught.value, "swarden.engine_under_test") == (
        "ConfigError/config.EngineConfig._check_choices/config.EngineConfig.__post_init__"
    )


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("unit_has_one_owner/swa page/free+tree", "unit_has_one_owner-swa-page-free+tree"),
        ("KeyError/pools.ledger.Ledger.take", "KeyError-pools.ledger.Ledger.take"),
        ("../a\n" + "b" * 200, "a-" + "b" * 115),
    ],
)
def test_slug_of_a_fingerprint_is_a_file_name(name, file_name):
    assert slug(name) == file_name
