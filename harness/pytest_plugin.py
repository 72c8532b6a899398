"""The pytest plugin: op-logs as tests, and a fixture that fuzzes an engine.

`pytest found.oplog` replays one op-log; `--swarden-oplogs` replays all op-logs in the folders that pytest collects.
The rest of swarden is imported only when an op-log is replayed or the fixture is called.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

SUFFIX = ".oplog"


class EngineFailed(Exception):
    """The engine failed; the text is the story."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "collect the op-logs in all collected folders too"
    parser.getgroup("swarden").addoption("--swarden-oplogs", action="store_true", help=text)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "OpLogFile | None":
    is_wanted = parent.session.isinitpath(file_path) or parent.config.getoption("--swarden-oplogs")
    return OpLogFile.from_parent(parent, path=file_path) if file_path.suffix == SUFFIX and is_wanted else None


class OpLogFile(pytest.File):
    """One op-log."""

    def collect(self) -> Iterator["Replay"]:
        yield Replay.from_parent(self, name="replay")


class Replay(pytest.Item):
    """Replays the op-log; passes if it does not fail any more."""

    def runtest(self) -> None:
        story = import_module("swarden.harness.search.testing").replayed(self.path)
        if story:
            raise EngineFailed(story)

    def repr_failure(self, excinfo: "pytest.ExceptionInfo[BaseException]") -> str:  # type: ignore[override]  # a text will do
        usage_error = import_module("swarden.harness.core.errors").UsageError
        if isinstance(excinfo.value, EngineFailed | usage_error):
            return str(import_module("swarden.harness.core.printable").printable(str(excinfo.value), keep="\n"))
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        printable = import_module("swarden.harness.core.printable").printable
        return self.path, None, f"replay {printable(self.path.name)}"


@pytest.fixture
def swarden_fuzz(tmp_path: Path) -> Callable[..., None]:
    """Fuzzes an engine, as in `swarden_fuzz("blockserve", seed=7, seconds=20)`; fails with the stories of the findings.

    Keyword arguments and defaults: `profile` (smoke), `machine` (all), `seed` (0), `seconds` (those of the profile, or
    no limit if there are `runs`), `runs` (no limit), `shrink_seconds` for all findings behind it (120), `out`, the
    folder for the findings (pytest's tmp_path).  A test without a run fails.
    """

    def fuzz(engine: str, *, out: Path = tmp_path, **options: object) -> None:
        testing = import_module("swarden.harness.search.testing")
        try:
            text = testing.failure_text(testing.fuzz(engine, out=out, **options))
        except import_module("swarden.harness.core.errors").UsageError as error:
            text = str(error)
        if text:
            pytest.fail(text, pytrace=False)

    return fuzz
