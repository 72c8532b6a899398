"""A patch fits where the text of each of its hunks stands once in its function, and its names exist, on any version."""

import pytest

from swarden.harness.core.patch import Hunk, Patch, fitting

SOURCE = """
def free(page):
    return page + 1

class Pool:
    if True:
        @staticmethod
        def take(count):
            count += 1
            count += 1
            return count

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, size):
        self.count = size
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/__init__.py").write_text(SOURCE)
    (tmp_path / "engine/user.py").write_text("import other\n\ndef use(pool):\n    return pool.take(1)\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/__init__.py").write_text("LENGTH = {}.setdefault(0, 1)\n")
    (tmp_path / "engine/broken.py").write_text("def free(:\n")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "text", "is_fitting"),
    [
        pytest.param("engine:free", "page + 1", True, id="function"),
        pytest.param("engine:Pool.take", "@staticmethod\ndef take", True, id="method-below-a-condition"),
        pytest.param("engine:Pool.take", "    return count\n", True, id="without-its-indentation"),
        pytest.param("engine:free", "  return page + 1\n", False, id="with-another-indentation"),
        pytest.param("engine:Pool.size", "return 1", True, id="getter-beside-a-setter"),
        pytest.param("engine:Pool.take", "count += 1", False, id="twice"),
        pytest.param("engine:free", "page + 2", False, id="changed"),
        pytest.param("engine:gone", "page", False, id="absent-function"),
        pytest.param("engine.gone:free", "page", False, id="absent-module"),
        pytest.param("engine.broken:free", "free", False, id="module-that-is-not-python"),
    ],
)
def test_patch_fits_where_its_text_stands_once(folder, place, text, is_fitting):
    patch = Patch("some", (Hunk(place, text, "pass"),))

    assert fitting([patch], folder) == [patch] * is_fitting


def test_patch_of_text_that_an_earlier_one_replaces_is_left_out(folder):
    first, second, third = (
        Patch(name, (Hunk("engine:free", before, after),))
        for name, before, after in (("first", "page + 1", "page + 2"), ("second", "+ 1", "+ 3"), ("third", "+ 2", "4"))
    )

    assert fitting([first, second, third], folder) == [first, third]


@pytest.mark.parametrize(
    ("after", "is_fitting"),
    [
        pytest.param("pool.size", True, id="attribute-of-another-module"),
        pytest.param("pool.gone", False, id="attribute-of-no-module"),
        pytest.param("pool.gone(1)", False, id="method-of-no-module"),
        pytest.param("pool.siz", False, id="part-of-a-word"),
        pytest.param("max(len([one for one in pool]), other)", True, id="global-builtin-and-local"),
        pytest.param("Pool", False, id="global-of-another-module"),
        pytest.param("vars(pool).setdefault('gone', 1) + pool.gone", True, id="attribute-that-it-sets-by-a-string"),
        pytest.param("[pool.gone for pool.gone in [1]]", True, id="attribute-that-it-sets"),
        pytest.param("other.LENGTH", True, id="attribute-of-an-imported-package"),
    ],
)
def test_patch_fits_where_the_names_that_it_brings_in_exist(folder, after, is_fitting):
    patch = Patch("some", (Hunk("engine.user:use", "pool.take(1)", after),))

    assert fitting([patch], folder) == [patch] * is_fitting
