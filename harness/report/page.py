"""Pages of HTML from templates: each is one file without a script, and loads nothing.

Every text goes through `printable`, and is escaped.
"""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.core.oplog import OpLog
from harness.core.printable import LAYOUT, printable
from harness.report.run_view import view_of


def page_of_log(log: OpLog, path: Path) -> str:
    """The page of one op-log; `path` is the file in its replay command."""
    return ENVIRONMENT.get_template("log.html.j2").render(run=view_of(log, path))


def _printed(value: object) -> object:
    """A value as a template prints it; the output of another template is markup already."""
    return printable(value, keep=LAYOUT) if isinstance(value, str) and not hasattr(value, "__html__") else value


ENVIRONMENT = Environment(
    loader=PackageLoader("harness.report"),
    autoescape=True,
    finalize=_printed,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
