"""Simpler ops for the shrinker: the same ops with arguments closer to their defaults, the simplest first."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard, TypeVar

import msgspec

from swarden.harness.core.limits import MAX_CHOICES, MAX_NUMBER, MAX_STEPS_PER_OP
from swarden.harness.core.ops import AdvanceClock, Drain, Op, Recipe, Step, Submit

StructT = TypeVar("StructT", bound=msgspec.Struct)
Change = Callable[[str, Any], Any]  # (name, old value of a field) -> new value

MAX_ELEMENTS = 16  # the elements of a longer tuple are not simplified one by one
# By kind of op: the argument that a merge adds up, and its maximum.
MERGEABLE: dict[type[Op], tuple[str, int]] = {Step: ("count", MAX_STEPS_PER_OP), AdvanceClock: ("ms", MAX_NUMBER)}
# By kind of op that creates a handle: the arguments, of any op, with the ordinal of such a handle.
HANDLES: dict[type[Op], tuple[str, ...]] = {Submit: ("request", "continues")}


class Argument(NamedTuple):
    """An argument of an op, or a field of its recipe, and its default."""

    name: str
    value: Any
    default: Any


def simpler(op: StructT) -> Iterator[StructT]:
    """All arguments at their defaults, then one argument at a time closer to its default."""
    bare = type(op)()
    if op != bare:
        yield bare
    for name in op.__struct_fields__:
        yield from simpler_in(op, name)


def simpler_in(op: StructT, name: str) -> Iterator[StructT]:
    """The op with the argument `name` closer to its default, the default first."""
    for value in simpler_values(Argument(name, getattr(op, name), getattr(type(op)(), name))):
        yield msgspec.structs.replace(op, **{name: value})


def simpler_values(argument: Argument) -> Iterator[Any]:
    """The default, then values between the default and the value, each closer to the value."""
    value, default = argument.value, argument.default
    if value == default:
        return
    if type(value) is int:
        yield from nearer(value, default)
    elif isinstance(value, tuple):
        yield default
        yield from _simpler_tuples(value)
    elif isinstance(value, msgspec.Struct):
        yield from simpler(value)
    else:
        yield default


def size(op: msgspec.Struct) -> int:
    """The distance of all arguments from their defaults; 0 if each is at its default."""
    return sum(_distance(argument.value, argument.default) for argument in _arguments(op))


def shared_arguments(ops: Sequence[Op]) -> list[Argument]:
    """The arguments with a value that several ops have, in the order of their first occurrence."""
    counts = Counter(argument for op in ops for argument in _all_arguments(op))
    return [argument for argument, count in counts.items() if count > 1 and argument.value != argument.default]


def replaced(ops: Sequence[Op], argument: Argument, value: Any) -> list[Op]:
    """The ops with `value` in the place of each occurrence of the argument."""
    return [changed(op, lambda name, old: value if (name, old) == argument[:2] else old) for op in ops]


def simpler_branches(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """A choice that several recipes share is removed or lowered in all of them, so that they still share a prefix."""
    paths = [argument.value for op in ops for argument in _all_arguments(op) if argument.name == "path"]
    prefixes = Counter(path[:end] for path in paths for end in range(1, len(path) + 1))
    for prefix, count in prefixes.items():
        if count > 1:
            yield _rebranched(ops, prefix, prefix[:-1])
            for choice in nearer(prefix[-1], 0):
                yield _rebranched(ops, prefix, (*prefix[:-1], choice))


def merged(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """Two mergeable ops, such as steps, as one op in the place of the second or of the first."""
    for kind, (name, limit) in MERGEABLE.items():
        of_kind = [index for index, op in enumerate(ops) if type(op) is kind]
        for first, second in pairwise(of_kind):
            if ops[first].engine == ops[second].engine:
                total = min(limit, getattr(ops[first], name) + getattr(ops[second], name))
                both = msgspec.structs.replace(ops[first], **{name: total})
                yield [*ops[:first], *ops[first + 1 : second], both, *ops[second + 1 :]]
                yield [*ops[:first], both, *ops[first + 1 : second], *ops[second + 1 :]]


def joined(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """Two requests as one, whose prompt has the choices of both, in the place of the second or of the first."""
    submits = [(index, op) for index, op in enumerate(ops) if isinstance(op, Submit) and op.tokens is None]
    for (first, early), (second, late) in pairwise(submits):
        yield [*ops[:first], *ops[first + 1 : second], _joined(early, late, late), *ops[second + 1 :]]
        yield [*ops[:first], _joined(early, late, early), *ops[first + 1 : second], *ops[second + 1 :]]


def drains_as_steps(ops: Sequence[Op]) -> list[Op]:
    """The ops with a Step op of the maximum count in the place of each drain."""
    return [Step(engine=op.engine, count=MAX_STEPS_PER_OP) if isinstance(op, Drain) else op for op in ops]


def without_one_handle(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """One op that creates a handle is removed, and the ordinals in later ops are lowered by one."""
    for index in reversed(range(len(ops))):
        handles = HANDLES.get(type(ops[index]), ())
        later = [_lowered(op, handles) for op in ops[index + 1 :]]
        if later != ops[index + 1 :]:
            yield [*ops[:index], *later]


def with_settings(
    configs: Sequence[dict[str, Any]], chosen: Sequence[int], values: dict[str, Any]
) -> list[dict[str, Any]]:
    """The configurations, the chosen ones with other values of settings that they have."""
    return [
        {name: values.get(name, old) if index in chosen else old for name, old in config.items()}
        for index, config in enumerate(configs)
    ]


def changed(value: StructT, change: Change) -> StructT:
    """The op or recipe with `change` applied to each field, including the fields of its recipe."""
    fields = {}
    for argument in _arguments(value):
        new = change(argument.name, argument.value)
        fields[argument.name] = changed(new, change) if isinstance(new, msgspec.Struct) else new
    return msgspec.structs.replace(value, **fields)


def _joined(first: Submit, second: Submit, kept: Submit) -> Submit:
    recipe = Recipe(
        path=(first.recipe.path + second.recipe.path)[:MAX_CHOICES],
        stretch=max(first.recipe.stretch, second.recipe.stretch),
        continues=first.recipe.continues,
    )
    longest = max(first.max_new_tokens, second.max_new_tokens)
    return msgspec.structs.replace(kept, recipe=recipe, max_new_tokens=longest)


def _lowered(op: Op, handles: Sequence[str]) -> Op:
    return changed(op, lambda name, old: old - 1 if name in handles and old else old)


def _arguments(value: msgspec.Struct) -> list[Argument]:
    bare = type(value)()
    return [Argument(name, getattr(value, name), getattr(bare, name)) for name in value.__struct_fields__]


def _all_arguments(value: msgspec.Struct) -> Iterator[Argument]:
    for argument in _arguments(value):
        yield argument
        if isinstance(argument.value, msgspec.Struct):
            yield from _all_arguments(argument.value)


def is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def nearer(value: int, default: int | None) -> Iterator[int | None]:
    """The default, then numbers whose distance from the value halves, down to 1."""
    if default is None:
        yield None
    distance = value - (default or 0)
    while distance:
        yield value - distance
        distance = int(distance / 2)


def _simpler_tuples(value: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Prefixes of the tuple, then one element removed, then one element lowered; only prefixes of a long tuple."""
    yield from (value[:end] for end in nearer(len(value), 0))
    if len(value) > MAX_ELEMENTS:
        return
    for index in range(len(value)):
        yield value[:index] + value[index + 1 :]
    for index, element in enumerate(value):
        yield from ((*value[:index], lower, *value[index + 1 :]) for lower in nearer(element, 0) if lower is not None)


def _distance(value: Any, default: Any) -> int:
    if value == default:
        return 0
    if isinstance(value, msgspec.Struct):
        return size(value)
    if isinstance(value, tuple):
        return 1 + len(value) + int(sum(value))
    if is_number(value):
        return 1 + value if default is None else abs(value - int(default))
    return 1


def _rebranched(ops: Sequence[Op], prefix: tuple[int, ...], new: tuple[int | None, ...]) -> list[Op]:
    """The ops with `prefix` replaced by `new` in all paths that begin with it."""
    length = len(prefix)

    def change(name: str, old: Any) -> Any:
        return new + old[length:] if name == "path" and old[:length] == prefix else old

    return [changed(op, change) for op in ops]
