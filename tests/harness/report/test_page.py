"""The page of one op-log."""

from pathlib import Path

from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.report.page import page_of_log
from tests.harness.report.html import parsed

OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
HOSTILE = "<img src=x onerror=alert(1)> \x1b[2J.oplog"


def page_of(name):
    path = OPLOGS / f"{name}.oplog"
    return parsed(page_of_log(load_log(path), path))


def page_of_ops(*ops, name="some.oplog", mutant=None):
    return page_of_log(OpLog(Header(engine=OWN, machine="engine", configs=[{}], mutant=mutant), ops), Path(name))


def rows_of(page):
    return page.all("tbody")[0].all("tr")


def test_page_has_a_row_for_each_transition_with_its_op_result_and_step():
    page = page_of("B18")

    rows = [[cell.text for cell in row.all("td")[:4]] for row in rows_of(page)]
    assert [(op, what, step) for op, what, _, step in rows] == [
        ("1", "submit 8 tokens by path 0.0, 5 new", "0"),
        ("2", "submit 4 tokens by path 0, 1 new", "0"),
        ("3", "step", "1"),
        *[("", "", str(step)) for step in range(2, 6)],
    ]
    assert rows[2][2] == "admitted r1 [0, 8) launched pass 1: r1 [0, 8)"
    assert [row.classes for row in rows_of(page) if "failed" in row.classes] == [["failed"]]
    assert rows[-1][2].endswith("finished r2: length violated")


def test_page_has_the_life_of_the_page_that_the_violation_names():
    """Its owner, and the events that moved, wrote and read it, beside the step in which they happened."""
    page = page_of("B18")

    lives = [row.all("td", "life", "first")[0] for row in rows_of(page)]
    assert page.all("th", "life", "first")[0].text == "life of full page 256"
    assert [life.all("i", "line")[0].classes[1] for life in lives] == ["k-free"] * 2 + ["k-tree"] * 4 + ["k-free"]
    assert [event.text for event in lives[2].all("span", "event")] == [
        "taken by request r1",
        "paired with swa 10",
        "written by request r1, positions 0 to 7",
        "given by request r1 to tree",
        "read by request r1, pass 1",
    ]
    assert [event.text for event in lives[-1].all("span", "e-freed")] == ["freed by tree, recovered"]


def test_page_has_the_occupancy_of_each_pool_by_kind_of_owner():
    """A full bar is the capacity."""
    page = page_of("B18")

    heads = [head.text for head in page.all("th", "pool")]
    assert heads == ["full of 256", "swa of 10", "rows of 16"]
    full, swa, _ = rows_of(page)[-1].all("td", "pool")
    assert full.all("span", "used")[0].text == "11"
    assert {part.classes[0]: part.attributes["style"] for part in full.all("i")} == {
        "k-request": "width:1.17%",
        "k-protected": "width:3.12%",
    }
    assert [part.classes[0] for part in swa.all("i")] == ["k-request", "k-protected", "k-evictable"]


def test_units_that_are_counted_twice_are_beside_the_bar():
    last = rows_of(page_of("S1"))[-1]

    assert [bar.all("b")[0].text for bar in last.all("td", "pool") if bar.all("b")] == ["+2"]
    assert "k-shared" in last.all("td", "life", "first")[0].all("i", "line")[0].classes


def test_page_has_the_tree_of_the_failing_step_with_units_locks_and_tombstones():
    nodes = page_of("B18").all("ol", "tree")[0].all("li")

    assert nodes[0].text == "n2 [0, 4) full 245 244 243 242 1 lock swa 6 8 9 10"
    assert nodes[1].text == "n4 [4, 5) full 252 1 lock swa tombstone"
    assert [node.attributes["style"] for node in nodes[:2]] == ["margin-left:0.0rem", "margin-left:1.75rem"]


def test_page_of_a_pair_has_the_pools_of_both_engines():
    """A row changes the pools of the engine that acts; the page says which engine failed."""
    page = page_of("B80")

    heads = [head.all("small")[0].text for head in page.all("th", "pool") if len(head.all("small")) > 1]
    assert heads == ["engine 0 (prefill)", "engine 1 (decode)"]
    for row in rows_of(page):
        acting = row.all("td", "engine")[0].text
        still = ["still" in bar.classes for bar in row.all("td", "pool")]
        assert len(set(still)) == 2
        assert still[0] == (acting == "engine 1 (decode)")
    assert "engine 1 (decode) failed" in page.all("ul", "facts")[0].text


def test_page_of_a_healthy_log_says_so_and_marks_ops_without_effect():
    page = parsed(page_of_ops(Abort(), Submit(recipe=Recipe(path=(0, 1))), Step(count=2), Abort(request=3), Drain()))

    assert page.all("p", "verdict", "good")[0].text == "no failure in 5 ops"
    assert [bool(row.all("span", "chip")) for row in rows_of(page) if "op" in row.classes] == [
        *(True, False, False, True, False)
    ]
    assert page.all("th", "life") == []


def test_page_is_one_file_without_scripts_and_links():
    page = parsed(page_of_ops(Submit(), Drain()))

    assert [page.all(tag) for tag in ("script", "link", "img", "iframe", "a")] == [[]] * 5
    policy = [meta.attributes["content"] for meta in page.all("meta") if "http-equiv" in meta.attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in page.all("style")[0].text


def test_text_of_a_log_is_escaped_for_html_and_has_no_control_characters():
    page = page_of_ops(Submit(), Drain(), name=HOSTILE)

    assert "\x1b" not in page
    root = parsed(page)
    assert root.all("img") == []
    assert root.all("h1")[0].text == r"<img src=x onerror=alert(1)> \x1b[2J.oplog"
