"""A violation as data: its subject, a code for the way in which the claim is broken, and the values that show it."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Self

from swarden.invariants.events import REQUEST_KIND, TREE_KIND, Owner
from swarden.invariants.view import ComponentView, PoolView

NODE = "node"
POOL, GROUP = "pool", "group"
WHOLES = frozenset({POOL, GROUP})  # the kinds of subjects that name a pool and no unit of it


class Code(Enum):
    """How a subject breaks a claim; each module of invariants has its own codes.

    A code is defined by its sentence, with the names of its values in braces.  Fingerprints have its name.
    """

    sentence: str

    def __new__(cls, sentence: str) -> Self:
        code = object.__new__(cls)
        code._value_ = len(cls.__members__)  # not the sentence: codes with equal sentences would be one code
        code.sentence = sentence
        return code


class Ref(NamedTuple):
    """A subject of a violation: a unit of `pool`, a whole pool, a request, a node, a session, a launch…

    A group of layers is a component, by its index, of a pool that several share.
    """

    kind: str
    id: int = 0
    pool: str = ""


class Found(NamedTuple):
    """A broken subject, with values: numbers, names, enum members, Refs, Owners, None, or sequences of these."""

    subject: Ref
    code: Code
    values: Mapping[str, object]


class Violation(NamedTuple):
    """One broken subject of one claim; `law` is the name of the law or contract."""

    law: str
    subject: Ref
    code: Code
    values: Mapping[str, object]


Evidence = Iterator[Found]


def found(subject: Ref, code: Code, **values: object) -> Found:
    """A `Found` with keyword arguments as its values."""
    return Found(subject, code, values)


def unit_ref(pool: PoolView, unit: int) -> Ref:
    return Ref(pool.unit, unit, pool.name)


def pool_ref(name: str) -> Ref:
    return Ref(POOL, pool=name)


def component_ref(components: Sequence[ComponentView], index: int) -> Ref:
    """The pool of a component; its group of layers if components share the pool."""
    pool = components[index].pool
    is_shared = sum(component.pool == pool for component in components) > 1
    return Ref(GROUP, index, pool) if is_shared else pool_ref(pool)


def request_ref(request_id: int) -> Ref:
    return Ref(REQUEST_KIND, request_id)


def node_ref(node_id: int) -> Ref:
    return Ref(NODE, node_id)


def owner_ref(owner: Owner) -> Ref:
    """The subject that stands for an owner: the node for a part of the tree."""
    return Ref(NODE if owner.kind == TREE_KIND else owner.kind, owner.id)
