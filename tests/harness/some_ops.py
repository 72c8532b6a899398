"""Any op with any arguments that an op-log may hold, from the types of ops.py."""

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from swarden.harness.core.ops import AnyOp, Op

MAX_ELEMENTS = 6


@cache
def any_ops(kinds: Sequence[type[Op]] = get_args(AnyOp)) -> SearchStrategy[Op]:
    return st.one_of([values_of(msgspec.inspect.type_info(kind)) for kind in kinds])


def values_of(info: msgspec.inspect.Type) -> SearchStrategy[Any]:
    """Values of a type within its limits, as far as ops have such types."""
    match info:
        case msgspec.inspect.IntType():
            return st.integers(info.ge, info.le)
        case msgspec.inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern, fullmatch=True)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case msgspec.inspect.UnionType():
            return st.one_of([values_of(member) for member in info.types])
        case msgspec.inspect.VarTupleType():
            return st.lists(values_of(info.item_type), max_size=MAX_ELEMENTS).map(tuple)
        case msgspec.inspect.StructType():
            return st.builds(info.cls, **{field.name: values_of(field.type) for field in info.fields})
        case _:
            raise NotImplementedError(f"no values for {info}")
