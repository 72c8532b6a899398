"""docs/engines.md lists the laws and contracts that apply to each engine, as the targets have them."""

from pathlib import Path

from swarden.invariants.catalog import ALL
from tests.engines.some_laws import applicable

ENGINES = ("swarden", "sglang==0.5.23", "vllm==0.33.0", "transformers==5.24.0", "lmdeploy==0.18.0")
PAGE = Path(__file__).parents[2] / "docs/engines.md"


def table(in_process_of):
    """The rows of the page: the laws in the order of the catalogue, then the contracts that not only ours promises."""
    applied = [in_process_of(engine, applicable, engine) for engine in ENGINES]
    rows = ["| law or contract | " + " | ".join(ENGINES) + " |", "| --- |" + " --- |" * len(ENGINES)]
    listed = [one for one in ALL.invariants if not one.contract or any(one.name in names for names in applied[1:])]
    for one in sorted(listed, key=lambda one: one.contract or ""):
        name = f"`{one.name}`" + (f" ({one.contract})" if one.contract else "")
        rows.append(f"| {name} | " + " | ".join("yes" if one.name in names else "" for names in applied) + " |")
    laws = [sum(one.name in names and one.contract is None for one in ALL.invariants) for names in applied]
    contracts = [len(names) - count for names, count in zip(applied, laws, strict=True)]
    rows.append("| laws | " + " | ".join(map(str, laws)) + " |")
    rows.append("| contracts | " + " | ".join(map(str, contracts)) + " |")
    return "\n".join(rows)


def test_page_has_the_laws_and_contracts_of_each_engine(in_process_of):
    found = table(in_process_of)

    assert found in PAGE.read_text(), f"put this table into {PAGE.name}:\n{found}"
