"""The level of the strict check in the environment, its checker, and its observers."""

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import GROUP, VARIABLE, Both, Setting, checker_of, setting_of
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.builders import EventLog


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        pytest.param("", None, id="empty"),
        pytest.param("off", None, id="off"),
        pytest.param("0", None, id="number-off"),
        pytest.param("off:report", None, id="off-report"),
        pytest.param("sums", Setting("sums", reports=False), id="sums"),
        pytest.param("1", Setting("sums", reports=False), id="number-sums"),
        pytest.param("2:report", Setting("audit", reports=True), id="number-report"),
        pytest.param("census:report", Setting("census", reports=True), id="report"),
        pytest.param("4", Setting("content", reports=False), id="number-content"),
    ],
)
def test_level_is_read_by_name_and_by_number(value, setting):
    assert setting_of({VARIABLE: value}) == setting


@pytest.mark.parametrize("value", ["audi", "5", "-1", "audit:", "audit:log", ":report:report", "²"])
def test_unknown_level_raises_with_the_known_levels(value):
    with pytest.raises(ConfigError) as raised:
        setting_of({VARIABLE: value})

    assert str(raised.value).startswith(f"SWARDEN_STRICT_MEM_CHECK: {value!r} is no level; want off, sums, audit, ")


def test_level_without_a_checker_raises_with_the_remedy(monkeypatch):
    monkeypatch.setattr("swarden.engine_under_test.strict.GROUP", "swarden.no_such_group")

    with pytest.raises(ConfigError, match=r"no installed package has a checker for 'audit' .*; install one with pip"):
        checker_of(Setting("audit", reports=False))


def test_level_off_attaches_no_observer(monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")

    engine = create_engine(EngineConfig(), ports=Ports(FakeForward(TagModel()), FakeClock()))

    assert engine.memory.table.rows.observer is None


def test_observer_and_checker_both_receive_events(monkeypatch):
    monkeypatch.setenv(VARIABLE, "audit")
    log = EventLog()
    engine = create_engine(EngineConfig(), ports=Ports(FakeForward(TagModel()), FakeClock(), log))

    engine.submit([1, 2, 3], SamplingParams(1))
    engine.step()

    assert isinstance(engine.memory.table.rows.observer, Both)
    assert [type(event).__name__ for event in log.events][:2] == ["Submitted", "StepBegan"]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package whose module offers the checker `made` for level `audit` in a group."""

    def put(package, source, group):
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\naudit = {package}:made\n")
        monkeypatch.syspath_prepend(tmp_path)

    return put


def test_two_checkers_for_one_level_raise_with_both_packages(install):
    """Neither checker replaces the other."""
    install("another", "", GROUP)

    packages = r"another \(another:made\), swarden \(swarden.harness.strict.checker:audit\)"
    with pytest.raises(
        ConfigError, match=rf"more than one package has a checker for 'audit' .*: {packages}; uninstall"
    ):
        checker_of(Setting("audit", reports=False))


@pytest.mark.parametrize(
    ("package", "source", "why"),
    [
        pytest.param(
            "lacks", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", id="import"
        ),
        pytest.param("empty", "", "AttributeError: module 'empty' has no attribute 'made'", id="no-such-name"),
        pytest.param(
            "raising", "def made(*, reports): raise OSError(5, 'gone')", "OSError: [Errno 5] gone", id="raises"
        ),
        pytest.param("exiting", "import sys; sys.exit(3)", "SystemExit: 3", id="exits"),
        pytest.param("none", "def made(*, reports): pass", "TypeError: None is no checker", id="no-checker"),
    ],
)
def test_unusable_checker_raises_with_its_package(install, monkeypatch, package, source, why):
    group = f"swarden.{package}"
    install(package, source, group)
    monkeypatch.setattr("swarden.engine_under_test.strict.GROUP", group)

    with pytest.raises(ConfigError) as raised:
        checker_of(Setting("audit", reports=False))

    assert str(raised.value) == (
        f"SWARDEN_STRICT_MEM_CHECK: the checker for 'audit' of {package} ({package}:made) cannot be used: {why}; "
        f"mend or uninstall {package}"
    )
