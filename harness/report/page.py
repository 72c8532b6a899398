"""Pages of HTML from templates: one file, no script, nothing loaded; each text is printable and escaped."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.printable import LAYOUT, printable
from swarden.harness.report.run_view import view_of
from swarden.harness.report.wording import counted


def page_of_log(log: OpLog, path: Path) -> str:
    """The page of one op-log; `path` is the file in its replay command."""
    return ENVIRONMENT.get_template("log.html.j2").render(run=view_of(log, path))


def part_of_log(log: OpLog, path: Path) -> str:
    """The part of an op-log's page that the page of several runs contains."""
    part: str = ENVIRONMENT.get_template("run.html.j2").module.run_part(view_of(log, path))  # type: ignore[attr-defined]  # a macro
    return part


def page_of_report(**values: object) -> str:
    """The page of an archive or of a campaign; `values` are the variables of the template."""
    return ENVIRONMENT.get_template("report.html.j2").render(values, counted=counted)


def page_of_text(title: str, text: str) -> str:
    """The page of a text in Markdown, whose own HTML is escaped."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(printable(text, keep=LAYOUT))
    return ENVIRONMENT.get_template("text.html.j2").render(title=title, body=body)


def _printed(value: object) -> object:
    """A value as a template prints it; the output of another template is markup already."""
    return printable(value, keep=LAYOUT) if isinstance(value, str) and not hasattr(value, "__html__") else value


ENVIRONMENT = Environment(
    loader=PackageLoader("swarden.harness.report"),
    autoescape=True,
    finalize=_printed,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
