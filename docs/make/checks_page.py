"""An entry for each law and contract, from its docstrings, its cases, its bugs and docs/engines.md."""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from docs.make import pages
from docs.make.pages import wrapped
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.engines.own.mutants.catalog import CATALOG
from swarden.harness.report.wording import evidence_text, subject_text
from swarden.invariants.catalog import ALL
from swarden.invariants.invariant import Invariant
from swarden.invariants.violation import Violation
from tests.invariants.test_invariants import CASES

ENGINES = pages.ROOT / "docs/engines.md"
MEANS = "On a server: "
ROW = re.compile(r"^\| `(\w+)`[^|]*\|(.*)\|$", re.MULTILINE)
CONTRACTS = "contracts"
HISTORICAL = ("sglang", "vllm")
TITLES = {"memory": "Memory", "content": "Content", "lifecycle": "Lifecycle", CONTRACTS: "Contracts"}


def entries_text() -> str:
    """The entries behind docs/checks.md."""
    parts = []
    for kind, title in TITLES.items():
        parts.append(f"## {title}\n")
        own = [law for law in ALL.invariants if kind_of(law) == kind]
        of_module = attrgetter("find.__module__")
        for module, laws in groupby(sorted(own, key=of_module), of_module):
            heading, means = about(module)
            parts += [f"### {heading}\n", wrapped(f"{MEANS}{means}")]
            parts += [entry for law in laws for entry in entries(law)]
    return "\n".join(parts)


def kind_of(law: Invariant) -> str:
    """The folder of its module: memory, content or lifecycle for a law."""
    return law.find.__module__.split(".")[3] if law.contract is None else CONTRACTS


def about(module: str) -> tuple[str, str]:
    """The title of a module of laws, and what a violation of them means for a server."""
    paragraphs = (inspect.getdoc(sys.modules[module]) or "").split("\n\n")
    [means] = [text.removeprefix(MEANS) for text in paragraphs if text.startswith(MEANS)]
    return paragraphs[0].rstrip("."), means if means[1].isupper() else means[0].lower() + means[1:]


def entries(law: Invariant) -> Iterator[str]:
    """The heading of a law, its claim with the conditions, an example, its bugs and its engines."""
    yield f"#### `{law.name}`\n"
    yield from map(wrapped, (inspect.getdoc(law.find) or "").split("\n\n"))
    facts = {"Example": example_of(law), "Bugs": "; ".join(bugs_of(law)), "Engines": ", ".join(engines_of(law))}
    items = [wrapped(f"- {name}: {text}", indent="  ").rstrip("\n") for name, text in facts.items() if text]
    yield "\n".join(items) + "\n"


def example_of(law: Invariant) -> str:
    """What a story says of the first broken case of a law."""
    broken = next(case for case in CASES if case.invariant is law and case.evidence)
    violation = Violation(law.name, *broken.evidence[0])
    return f"`{subject_text(violation.subject)}: {evidence_text(violation)}`"


def bugs_of(law: Invariant) -> Iterator[str]:
    """A bug of a release that has a document, and the planted bug that breaks this law before others, if there are."""
    documented = documented_bugs().get(law.name, [])[:1]
    yield from (f"[{bug.name}](findings/{bug.name}.md): {bug.effect}" for bug in documented)
    planted = [bug for bug in CATALOG if law.name in bug.caught_by]
    nearest = sorted(planted, key=lambda bug: (bug.caught_by.index(law.name), not bug.source.startswith(HISTORICAL)))
    yield from (f"{bug.id}, {bug.source}" for bug in nearest[:1])


def documented_bugs() -> dict[str, list[KnownBug]]:
    """The known bugs that have a document, by the law or error of their first failure."""
    bugs = defaultdict(list)
    for bug in [bug for engine in pages.ENGINES for bug in pages.own_bugs(engine) if bug.document is not None]:
        bugs[bug.fingerprints[0].split("/")[0]].append(bug)
    return bugs


def engines_of(invariant: Invariant) -> list[str]:
    """The engines to which it applies, as docs/engines.md has them; ours alone without a row there."""
    text = ENGINES.read_text()
    names = text.partition("| law or contract |")[2].partition("\n")[0].strip("| ").split(" | ")
    applies = {law: [cell.strip() for cell in cells.split("|")] for law, cells in ROW.findall(text)}
    cells = applies.get(invariant.name, ["yes"])
    return [name.partition("==")[0] for name, cell in zip(names, cells, strict=False) if cell == "yes"]
