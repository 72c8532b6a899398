"""A release beside an older one: what of it an adapter reads and wraps, in figures and in lines."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import target_of
from swarden.harness.core.releases import parsed
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.settings import IfReleaseHas, declared
from swarden.harness.releases import reads
from swarden.harness.report.wording import counted, listed

LEAK = ("unit_has_one_owner", "leaked")  # the law and the code of a unit that is neither free nor owned
MOST_SHOWN = 3  # definitions or places of the adapter in a line
_some = partial(listed, most=MOST_SHOWN)


def released(name: str) -> ReleasedTarget[Any]:
    """The target of a release; raises UsageError if its engine has none that swarden installs."""
    target = target_of(name)
    if not isinstance(target, ReleasedTarget):
        raise UsageError(f"{name}: its target is no ReleasedTarget, and declares no parts; see 'swarden engines'")
    return target


def compared(target: ReleasedTarget[Any], against: str | None = None) -> reads.Comparison:
    """A release beside another one, by default beside the newest older release that is installed."""
    older = [version for version in target.releases.installed() if parsed(version) < parsed(target.version())]
    if against is None and not older:
        want = f"run: swarden engines install {target.name}==VERSION of the release that worked before"
        raise UsageError(f"{target.process}: no older release is installed to compare it with; {want}")
    old = released(f"{target.name}=={against or older[-1]}")
    return reads.Comparison(
        reads.adapter_of(target), reads.definitions_of(old), reads.definitions_of(target), old.version()
    )


def may_have_new_owner(target: ReleasedTarget[Any], comparison: reads.Comparison) -> bool:
    """Whether a leak can come from an owner that is new to the adapter.

    The release is newer than all on which known bugs were tried, and has names that the adapter does not read.
    """
    tried = [parsed(bug.tried) for bug in target.known_bugs().values()]
    is_newer = parsed(target.version()) > max(tried, default=())
    return is_newer and any(difference.kind == reads.NEW for difference in comparison.differences)


def is_leak(fingerprint: str) -> bool:
    return set(LEAK) <= {*fingerprint.split("/")}


def figures_of(target: ReleasedTarget[Any], comparison: reads.Comparison) -> dict[str, Any]:
    """The comparison for scripts."""
    return {
        "engine": target.name,
        "version": target.version(),
        "against": comparison.version,
        "names": len(comparison.table),
        "modules": len(comparison.new.modules),
        "digest": comparison.new.digest,
        "differences": [
            {
                "kind": difference.kind,
                "what": difference.what,
                "now": list(difference.now),
                "uses": [str(use) for use in difference.uses],
                "laws": list(difference.laws),
                "settings": _settings(target, difference),
            }
            for difference in comparison.differences
        ],
    }


def lines_of(target: ReleasedTarget[Any], comparison: reads.Comparison) -> Iterator[str]:
    """A line for each name that differs, and the laws that the differences make not applicable."""
    names, modules = counted(len(comparison.table), "name"), counted(len(comparison.new.modules), "module")
    yield f"{target.process}, beside {comparison.version}: the adapter reads {names} of {modules}"
    differences = [difference for difference in comparison.differences if difference.kind != reads.NEW]
    alone = [group for _, [*group] in groupby(differences, key=attrgetter("kind", "name"))]
    for same in _by_class(alone):
        kind = same[0].kind
        yield f"{kind:<10}{_text_of(same)}"
        if kind == reads.MISSING and (settings := _settings(target, same[0])):
            yield f"{'':<10}not drawn without it: {', '.join(settings)}"
        if laws := list(dict.fromkeys(law for difference in same for law in difference.laws)):
            yield f"{'':<10}not applicable where it cannot be read: {', '.join(laws)}"
    for place, fresh in _new_names(comparison).items():
        yield f"{reads.NEW:<10}{place}: {', '.join(fresh)}"
    counts = Counter(kind for kind, _ in {(difference.kind, difference.name) for difference in comparison.differences})
    figures = ", ".join(f"{counts[kind]} {kind}" for kind in reads.KINDS if counts[kind])
    yield f"{figures}; the adapter does not read what is new" if counts[reads.NEW] else figures or "no difference"


def _new_names(comparison: reads.Comparison) -> Mapping[str, Sequence[str]]:
    """The names that are new, by the class that has them; new classes by their module."""
    names: dict[str, list[str]] = defaultdict(list)
    for difference in comparison.differences:
        if difference.kind == reads.NEW:
            names[difference.place].append(_without_place(difference))
    return dict(sorted(names.items()))


def _by_class(groups: Iterable[list[reads.Difference]]) -> Iterator[list[reads.Difference]]:
    """The differences in groups of one name; a class that has lost more than MOST_SHOWN names is one group."""
    groups, of_class = list(groups), defaultdict[tuple[bool, str], list[reads.Difference]](list)
    for group in groups:
        if len(group) == 1 and group[0].kind in (reads.GONE, reads.MOVED, reads.UNSET):
            of_class[group[0].kind == reads.UNSET, group[0].place] += group
    for group in groups:
        together = of_class[group[0].kind == reads.UNSET, group[0].place]
        if group[0] not in together or len(together) <= MOST_SHOWN:
            yield group
        elif group[0] is together[0]:
            yield together


def _without_place(difference: reads.Difference) -> str:
    return difference.what.removeprefix(difference.place).lstrip(".:")


def _text_of(same: Sequence[reads.Difference]) -> str:
    first, more = same[0], len(same) - 1
    if len({difference.name for difference in same}) > 1:
        places = Counter(re.split(r"[.:]", now.partition("(")[0])[-2] for difference in same for now in difference.now)
        now = f"; some of them now in {_some([name for name, _ in places.most_common()])}" if places else ""
        uses = list(dict.fromkeys(str(use) for difference in same for use in difference.uses))
        return f"{first.place}: {', '.join(map(_without_place, same))}{now}; used at {_some(uses)}"
    text = first.what + (f" and {more} more of this name" if more else "")
    text += f"; now {_some(first.now)}" if first.now else ""
    return text + (f"; used at {_some(first.uses)}" if first.uses else "")


def _settings(target: ReleasedTarget[Any], difference: reads.Difference) -> list[str]:
    """The settings of the target that a release without a part does not have."""
    needed = declared(target.config_type, IfReleaseHas)
    return [name for name, (feature,) in needed.items() if feature in difference.features]


def rows_of(table: Mapping[str, Sequence[reads.Use]]) -> dict[str, list[dict[str, Any]]]:
    """The table of what the adapter reads and wraps, for scripts."""
    return {name: [use._asdict() for use in uses] for name, uses in sorted(table.items())}


def table_lines(comparison: reads.Comparison) -> Iterator[str]:
    """The same for people: a line for each name."""
    for name, uses in sorted(comparison.table.items()):
        how = "/".join(dict.fromkeys(use.how for use in uses))
        definitions = comparison.new.by_name.get(name, ())
        places = dict.fromkeys(definition.owner or definition.module for definition in definitions)
        yield f"{name} ({how}): of {_some(list(places)) or 'an older release'}; at {_some(uses)}"
