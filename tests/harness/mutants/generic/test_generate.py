"""A sample is the same for the same seed, and holds nothing that no run could tell from the original."""

import pytest

from harness.mutants.generic.generate import sample

SOURCE = '''
"""One module."""

LIMIT = 3


class Shelf:
    """Holds things."""

    def room(self, used: int | None, *, most: int = LIMIT) -> int | None:
        """What is left."""
        assert used != 4, "never"
        return most - used

    @property
    def is_wide(self) -> bool:
        return True
'''


def mutations(folder, source=SOURCE, **options):
    """The sample of a module that lies in a folder of its own."""
    (folder / "shop").mkdir(exist_ok=True)
    (folder / "shop" / "shelf.py").write_text(source)
    return sample(folder, ["shop"], **{"count": 100, "seed": 1} | options)


def test_the_same_seed_draws_the_same_sample(tmp_path):
    """Another seed draws others."""
    first, again, other = (mutations(tmp_path, count=4, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert len(first) == len({one.id for one in first}) == 4
    assert {one.id for one in first} != {one.id for one in other}


def test_every_place_is_drawn_before_any_is_drawn_again(tmp_path):
    """Three: the number, the subtraction and the truth; the decorator is a fourth."""
    few = mutations(tmp_path, count=4)

    assert sorted(one.line for one in few) == [4, 13, 15, 17]


def test_what_describes_or_forbids_is_not_changed(tmp_path):
    """No annotation, no assertion, no star in a signature."""
    changed = {line for one in mutations(tmp_path) for line in one.changed}

    assert not any(line.startswith(("- def", "- assert", "- class")) for line in changed)
    assert {"- LIMIT = 3", "- return most - used", "- return True", "- @property"} <= changed


def test_a_mutation_names_its_place_and_its_diff(tmp_path):
    """The place without lines, the diff with one around it."""
    [truth] = [one for one in mutations(tmp_path) if "- return True" in one.changed]

    assert (truth.path, truth.module, truth.place) == ("shop/shelf.py", "shop.shelf", "Shelf.is_wide")
    assert truth.diff.splitlines() == [
        "     def is_wide(self) -> bool:",
        "-        return True",
        "+        return False",
    ]


def test_an_id_survives_what_is_added_above(tmp_path):
    """The lines move, the ids stay."""
    before = {one.id: one.line for one in mutations(tmp_path) if one.place == "Shelf.is_wide"}

    moved = mutations(tmp_path, SOURCE.replace("LIMIT = 3", "LIMIT = 3\nLEAST = 0"))

    assert {one.id: one.line - 1 for one in moved if one.place == "Shelf.is_wide"} == before


@pytest.mark.parametrize("source", ["x: int = None\n", "def f(a, *, b): ...\n", "assert 1 < 2\n"], ids=str)
def test_there_may_be_nothing_to_change(tmp_path, source):
    assert mutations(tmp_path, source) == []
