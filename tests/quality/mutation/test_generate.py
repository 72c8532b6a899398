"""A sample depends only on its seed, and has no mutation that leaves the behaviour of healthy code unchanged."""

import pytest

from tests.quality.mutation.generate import sample

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

LOOP = """for x in range(3 + 4):
    for y in (x, 1):
        assert x < y
"""


def mutations(folder, source=SOURCE, **options):
    """The sample of a module in its own folder."""
    (folder / "shop").mkdir(exist_ok=True)
    (folder / "shop" / "shelf.py").write_text(source)
    return sample(folder, ["shop"], **{"count": 100, "seed": 1} | options)


def test_equal_seeds_draw_equal_samples_and_other_seeds_draw_others(tmp_path):
    first, again, other = (mutations(tmp_path, count=4, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert len(first) == len({mutation.id for mutation in first}) == 4
    assert {mutation.id for mutation in first} != {mutation.id for mutation in other}


def test_each_place_is_mutated_before_any_is_mutated_twice(tmp_path):
    """The four places are the number, the subtraction, the decorator and the boolean."""
    few = mutations(tmp_path, count=4)

    assert sorted(mutation.line for mutation in few) == [4, 13, 15, 17]


def test_annotations_assertions_and_signature_stars_are_not_changed(tmp_path):
    changed = {line for mutation in mutations(tmp_path) for line in mutation.changed}

    assert not any(line.startswith(("- def", "- assert", "- class")) for line in changed)
    assert {"- LIMIT = 3", "- return most - used", "- return True", "- @property"} <= changed


def test_mutation_names_its_place_and_its_diff(tmp_path):
    """The place has no line numbers; the diff has one line of context."""
    [truth] = [mutation for mutation in mutations(tmp_path) if "- return True" in mutation.changed]

    assert (truth.path, truth.module, truth.place) == ("shop/shelf.py", "swarden.shop.shelf", "Shelf.is_wide")
    assert truth.diff.splitlines() == [
        "     def is_wide(self) -> bool:",
        "-        return True",
        "+        return False",
    ]


def test_id_stays_the_same_when_lines_are_added_above(tmp_path):
    before = {mutation.id: mutation.line for mutation in mutations(tmp_path) if mutation.place == "Shelf.is_wide"}

    moved = mutations(tmp_path, SOURCE.replace("LIMIT = 3", "LIMIT = 3\nLEAST = 0"))

    assert {mutation.id: mutation.line - 1 for mutation in moved if mutation.place == "Shelf.is_wide"} == before


@pytest.mark.parametrize("source", ["x: int = None\n", "def f(a, *, b): ...\n", "assert 1 < 2\n", LOOP], ids=str)
def test_code_without_behaviour_has_no_mutations(tmp_path, source):
    assert mutations(tmp_path, source) == []
