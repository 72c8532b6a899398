"""The page of a run of a release."""

from pathlib import Path

from swarden.harness.core.admission import load_log
from swarden.harness.report.page import page_of_log
from tests.harness.report.html import parsed

MUTANTS = Path(__file__).parent / "mutants"


def page(path: Path) -> str:
    return page_of_log(load_log(path), path)


def test_page_of_a_release_has_its_pools_and_the_life_of_the_failing_page(on_release):
    """The page was taken, written, freed and read in one step."""
    root = parsed(on_release("0.5.23", page, MUTANTS / "use-after-free-of-a-locked-node.oplog"))

    last = root.all("tbody")[0].all("tr")[-1]
    life = last.all("td", "life", "first")[0]
    assert root.all("th", "life", "first")[0].text == "life of full page 1"
    assert [event.text.split()[0] for event in life.all("span", "event")] == ["taken", "written", "freed", "read"]
    assert len(last.all("td", "pool")) == 3
    assert root.all("ol", "tree")[0].all("li")[0].text.startswith("n1 [0, 1) full 5 ")
