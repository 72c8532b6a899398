"""Objects of a release in a program: each is made by the call that made it, and what is not known is refused."""

from enum import Enum
from types import SimpleNamespace

import pytest

from swarden.harness.core.program import NoProgram
from swarden.harness.kit.constructed import Constructions


class Colour(Enum):
    RED = "'); import os; ('"


class Layer:
    def __init__(self, size, colour=None, *, is_window=False, least=1):
        self.size = size


class Rows:
    def __init__(self, *layers, names):
        self.layers = layers
        self.states = Layer(9)


class Tree:
    def __init__(self, rows, **more):
        self.rows, self.more = rows, more


@pytest.fixture
def making():
    return Constructions()


@pytest.fixture
def tree(making):
    with making.recording([Layer, Rows, Tree, len, None]):
        rows = Rows(Layer(1, colour=Colour.RED), Layer(size=[2, "a\0"]), names=("a", "b"))
        return Tree(rows, states=rows.states, ranks=SimpleNamespace(rank=0))


def test_objects_are_made_as_they_were(making, tree):
    text = making.text({"tree": tree, "rows": tree.rows})

    lines = text.splitlines()
    assert lines[:4] == [f"from {__name__} import {name}" for name in ("Colour", "Layer", "Rows", "Tree")]
    assert lines[4:] == [
        "from types import SimpleNamespace",
        "rows = Rows(Layer(1, colour=Colour.RED), Layer(size=[2, 'a\\x00']), names=('a', 'b'))",
        "return {'tree': Tree(rows, states=rows.states, ranks=SimpleNamespace(rank=0)), 'rows': rows}",
    ]


def test_objects_of_one_class_have_names_of_their_own(making):
    with making.recording([Layer]):
        first, second = Layer(1), Layer(2)

    assert making.text({"all": [first, second, first, second]}).splitlines()[1:] == [
        "layer = Layer(1)",
        "layer_1 = Layer(2)",
        "return {'all': [layer, layer_1, layer, layer_1]}",
    ]


def test_arguments_are_left_out_if_they_are_as_by_default(making):
    with making.recording([Layer, Tree]):
        tree = Tree(Layer(2, colour=None, is_window=False, least=True), left=None)

    assert making.text({"tree": tree}).splitlines()[-1] == "return {'tree': Tree(Layer(2, least=True), left=None)}"


def test_named_object_is_not_made(making, tree):
    making.named[id(tree.rows)] = "given"

    assert making.text({"tree": tree}).splitlines()[-1].startswith("return {'tree': Tree(given, states=given.states, ")


def test_object_whose_constructor_was_not_recorded_is_refused(making):
    with pytest.raises(NoProgram, match="built with a Layer"):
        making.text({"layer": Layer(3)})


def test_classes_are_as_before_when_the_recording_has_ended(making, tree):
    assert Layer(1).size == 1
    assert not making.has(Layer(1))
    assert making.of(Tree) is tree
