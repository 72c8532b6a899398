"""The page of an archive: known bugs, imports, and how the archive is named."""

from collections import Counter

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.nightly.archive import IMPORT, Archive, EngineOfNight, Sighting, Status
from swarden.harness.search.result import Tallies
from tests.harness.commands.test_report import NIGHTS, OPEN, a_night, an_archive, page_without_runs, save_night, section
from tests.harness.some_commands import swarden


def test_page_has_known_bugs_with_their_documents_and_what_to_do(tmp_path):
    """A night that only known bugs have failed is neither red nor green, and tables without rows are left out."""
    tallies = Tallies(runs=9, failed_runs=4, known=Counter({"prompt-never-admitted": 3, "gone": 1}))
    engine = EngineOfNight(
        engine="sglang", version="0.5.23", source_hash="", tallies=tallies, why_not_judged="9 runs, want at least 2000"
    )
    archive = Archive(tmp_path / "archive")
    night = a_night(NIGHTS[1], exit_code=ExitCode.CLEAN, canaries=[])
    night.engines = [engine]
    save_night(archive, night)

    page = page_without_runs(archive.root)

    assert page.all("h1")[0].text == f"Night {NIGHTS[1]} failed by known bugs only"
    assert page.all("ul", "warn")[0].text == "sglang is not judged: 9 runs, want at least 2000"
    assert page.all("p", "next")[0].text.startswith("Nothing is new.")
    never, gone = page.all("details", "finding")
    assert [span.text for span in never.all("summary")[0].all("span")] == ["3 runs", "prompt-never-admitted", "sglang"]
    assert all(link.attributes["href"].startswith("https://github.com/") for link in never.all("a"))
    assert never.all("a")
    assert never.all("pre")
    assert gone.all("span", "chip")[0].text == "1 run"
    assert [heading.text for heading in page.all("h3")] == []


def test_imported_finding_has_its_column_behind_the_night_before(tmp_path):
    archive = Archive(tmp_path / "archive")
    found = archive.finding("swarden", OPEN)
    found.add(Sighting(night=NIGHTS[0] + IMPORT, engine="swarden", version="0.1.0", status=Status.NEW))
    for name in NIGHTS:
        save_night(archive, a_night(name))

    history = section(page_without_runs(archive.root), "The archive over the nights")[1]

    assert [head.text for head in history.all("th")] == ["finding", NIGHTS[0], NIGHTS[0] + IMPORT, NIGHTS[1]]
    assert [len(cell.all("i")) for cell in history.all("tr")[2].all("td")] == [0, 0, 1, 0]


def test_archive_is_named_as_for_a_night(tmp_path):
    archive = an_archive(tmp_path / "archive")

    named = swarden("report", "--archive", archive.root, "-o", "a.html", cwd=tmp_path)
    both = swarden("report", archive.root, "--archive", archive.root, cwd=tmp_path)

    assert (named.returncode, (tmp_path / "a.html").exists()) == (0, True), named.stderr
    assert (both.returncode, both.stderr.count("\n")) == (2, 1)
