"""swarden in pytest: op-logs as tests, and a fixture that fuzzes an engine.

`pytest found.oplog` replays an op-log that is named on the command line; with `--swarden-oplogs` all that lie in the
folders that pytest visits.  Nothing of swarden is imported before one of both is used.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

SUFFIX = ".oplog"


class Failed(Exception):
    """An engine failed; the text is the story."""


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "collect the op-logs in all folders that are visited, too"
    parser.getgroup("swarden").addoption("--swarden-oplogs", action="store_true", help=told)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "OpLogFile | None":
    is_wanted = parent.session.isinitpath(file_path) or parent.config.getoption("--swarden-oplogs")
    return OpLogFile.from_parent(parent, path=file_path) if file_path.suffix == SUFFIX and is_wanted else None


class OpLogFile(pytest.File):
    """One op-log."""

    def collect(self) -> Iterator["Replay"]:
        yield Replay.from_parent(self, name="replay")


class Replay(pytest.Item):
    """Passes where the op-log does not fail any more."""

    def runtest(self) -> None:
        story = import_module("harness.search.testing").replayed(self.path)
        if story:
            raise Failed(story)

    def repr_failure(self, excinfo: "pytest.ExceptionInfo[BaseException]") -> str:  # type: ignore[override]  # a text will do
        usage_error = import_module("harness.core.errors").UsageError
        if isinstance(excinfo.value, Failed | usage_error):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"replay {self.path.name}"


@pytest.fixture
def swarden_fuzz(tmp_path: Path) -> Callable[..., None]:
    """Fuzzes an engine, as `swarden_fuzz("blockserve", seed=7, seconds=20)`; fails with the stories of what it finds.

    Keyword arguments: `profile` (smoke), `machine` (all), `seed` (0), `seconds` (the profile's), `runs` (as many as fit
    into the time), `out`, where the findings are written (pytest's tmp_path).
    """

    def fuzz(engine: str, *, out: Path = tmp_path, **options: object) -> None:
        testing = import_module("harness.search.testing")
        try:
            told = testing.fuzzed(testing.Fuzz(engine, **options), out)
        except import_module("harness.core.errors").UsageError as error:
            told = str(error)
        if told:
            pytest.fail(told, pytrace=False)

    return fuzz
