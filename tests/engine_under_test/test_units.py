"""Arithmetic of tokens and pages, and the names of owners."""

import pytest

from swarden.engine_under_test.units import align_down, align_up, lookback, num_pages, request_owner
from swarden.invariants.events import TREE, Owner


@pytest.mark.parametrize(
    ("length", "down", "up", "pages"),
    [
        pytest.param(0, 0, 0, 0, id="no token"),
        pytest.param(1, 0, 4, 1, id="part of a page"),
        pytest.param(4, 4, 4, 1, id="a whole page"),
        pytest.param(5, 4, 8, 2, id="a page and a token"),
        pytest.param(8, 8, 8, 2, id="two whole pages"),
    ],
)
def test_lengths_are_rounded_to_pages(length, down, up, pages):
    assert (align_down(length, 4), align_up(length, 4), num_pages(length, 4)) == (down, up, pages)


def test_lookback_excludes_the_token_itself():
    assert lookback(128) == 127


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(request_owner(3), "request r3", id="request"),
        pytest.param(Owner("session", 12), "session s12", id="session"),
        pytest.param(TREE, "tree", id="tree"),
        pytest.param(Owner("tree", 7), "tree n7", id="node"),
        pytest.param(Owner("pressure"), "pressure", id="without-ordinal"),
    ],
)
def test_owner_text_has_kind_and_number(owner, name):
    assert str(owner) == name
