"""How the command line ends when something cannot be read or written, or when swarden itself is at fault."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.table import Table

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import AccountingError, ConfigError
from swarden.harness.cli import run
from swarden.harness.commands.console import OUT, print_piece
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.target_fault import TargetFault
from tests.harness.some_processes import DEADLINE_S
from tests.harness.some_targets import write_blockserve


@pytest.fixture
def passing(tmp_path: Path) -> Path:
    """The op-log of a run in which nothing fails."""
    path = tmp_path / "passing.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), (Submit(), Drain())).save(path)
    return path


@pytest.fixture
def end_of(capsys):
    """Exit code and standard error of the command line where a command raises `error`."""

    def end(error):
        def raising():
            raise error

        return run(raising), capsys.readouterr().err

    return end


@pytest.mark.parametrize(
    ("error", "line"),
    [
        pytest.param(
            OSError(13, "Permission denied", "a/file"), "swarden: a/file: Permission denied\n", id="of-a-file"
        ),
        pytest.param(OSError(28, "No space left on device"), "swarden: No space left on device\n", id="of-no-file"),
    ],
)
def test_an_operating_error_names_its_file(end_of, error, line):
    assert end_of(error) == (2, line)


ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b"
ESCAPED = r"\x1b]0;owned\x07\x1b[2J\u202e\x9b"


@pytest.mark.parametrize(
    "error", [UsageError(f"{ESCAPE}: x"), typer.BadParameter(f"{ESCAPE}: x"), OSError(2, "x", ESCAPE)], ids=repr
)
def test_error_about_a_hostile_name_is_printed_in_escaped_form(end_of, error):
    code, told = end_of(error)

    assert code == 2
    assert f"{ESCAPED}: x\n" in told
    assert told.replace("\n", "").isprintable()


def test_fault_of_swarden_is_printed_in_escaped_form(end_of):
    _, told = end_of(KeyError(ESCAPE))

    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "error",
    [
        UsageError("x" * 10_000 + "; rename it"),
        TargetFault("x" * 10_000 + "; rename it", "target/build"),
        ConfigError("x" * 10_000 + "; rename it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_long_error_loses_its_middle_and_not_its_remedy(end_of, error):
    _, told = end_of(error)

    assert told == f"swarden: {'x' * 331} … {'x' * 155}; rename it\n"


def test_cells_and_pieces_are_printed_in_escaped_form(capsys):
    table = Table(ESCAPE, box=None)
    table.add_row(f"{ESCAPE}\ta\nb")

    OUT.print(table)
    print_piece(f"{ESCAPE}\ta\nb")

    told = capsys.readouterr().out
    assert [line.strip() for line in told.splitlines()] == [ESCAPED, rf"{ESCAPED}\ta", "b", f"{ESCAPED}\ta", "b"]


def test_text_that_the_encoding_of_standard_output_lacks_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)

    OUT.print("é…", markup=False)

    stream.flush()
    assert stream.buffer.getvalue() == rb"\xe9\u2026" + b"\n"


def test_a_fault_of_swarden_shows_its_traceback_and_exits_with_70(end_of):
    """An internal error must not look like a violation, which exits with 1."""
    code, told = end_of(KeyError("r3"))

    assert code == 70
    assert told.startswith("Traceback ")
    assert told.splitlines()[-2:] == ["KeyError: 'r3'", "swarden: internal error; please report it"]


def test_books_that_are_wrong_are_a_violation(end_of):
    """The strict check raises AccountingError with its story, which is printed whole."""
    told = "unit_has_one_owner: broken\n  full page 3: owned by nobody"

    assert end_of(AccountingError(told)) == (1, f"{told}\n")


@pytest.mark.parametrize("error", ["ImportError('torn')", "OSError('torn')"])
def test_interrupt_that_an_import_turns_into_another_error_exits_with_130(error):
    program = f"""
import signal, harness.cli as cli
def app(**_):
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise {error}
cli.app = app
cli.main()
"""

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert run.returncode == 130, run.stderr


def test_an_interrupt_is_one_line_and_exits_with_130(end_of):
    assert end_of(typer.Abort()) == (130, "swarden: interrupted\n")


def test_exception_that_is_no_error_is_an_internal_error(end_of):
    """Python's own exit code for it, 1, means a violation."""
    code, told = end_of(BaseException("x"))

    assert (code, told.splitlines()[-2]) == (70, "BaseException: x")


ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "numpy", "hypothesis"}
PROBE = """
import sys, time
from swarden.harness.cli import app, run
sys.argv = ["swarden", *sys.argv[1:]]
code = run(lambda: app(standalone_mode=False))
print(code, time.process_time(), *sys.modules, file=sys.stderr)
"""
WITHOUT_TORCH = """
import sys
sys.argv[0], sys.modules["torch"] = "swarden", None
from swarden.harness.cli import main
main()
"""
SPEC = "blockserve.target:DemoTarget"
TARGET = f"from {SPEC.replace(':', ' import ')} as Base\nclass Target(Base):\n"
BROKEN = {  # the sources of engines that end the process: on import, on import in a worker, when called, in a run
    "exits": "import sys\nsys.exit()",
    "exits_in_worker": f"import sys\nif 'swarden.harness.cli' not in sys.modules:\n    exit(3)\n{TARGET}    pass",
    "has_no_version": f"{TARGET}    def version(self): exit(1)",
    "exits_in_run": f"{TARGET}    def build(self, config): exit(0)",
}


@pytest.fixture
def swarden(tmp_path):
    """Runs a script with the arguments of a command line, where blockserve and the engines of BROKEN are installed.

    None needs torch.
    """
    write_blockserve(tmp_path)
    for name, source in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(source)
    for name, target in ({"blockserve": SPEC} | {name: f"{name}:Target" for name in BROKEN}).items():
        info = tmp_path / f"{name}-1.2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.0\n")
        (info / "entry_points.txt").write_text(f"[swarden.engines]\n{name} = {target}\n")
        (info / "top_level.txt").write_text(f"{name}\n")

    def run_script(script, *arguments, **environment):
        return subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "COLUMNS": "240"} | environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return run_script


@pytest.fixture
def foreign(tmp_path):
    """The op-log of an engine that needs no torch."""
    (tmp_path / "foreign.oplog").write_bytes(
        b'{"format":3,"engine":"blockserve","configs":[{}]}\n{"op":"submit"}\n{"op":"drain"}\n'
    )


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    "line", ["--help", "--version", "show --help", "show foreign.oplog", "replay foreign.oplog --events events.jsonl"]
)
def test_command_line_imports_only_what_a_task_needs(swarden, line):
    run = swarden(PROBE, *line.split())

    code, cpu_seconds, *modules = run.stderr.splitlines()[-1].split()
    assert code == "0", run.stdout + run.stderr
    assert HEAVY & set(modules) == set()
    assert {name for name in modules if name.startswith("swarden.engine_under_test.")} <= {
        "swarden.engine_under_test.errors"
    }
    assert float(cpu_seconds) < 2


@pytest.mark.parametrize("line", ["fuzz", "trace x", "generate --checkpoint x", "bench"])
def test_command_of_own_engine_without_torch_names_the_extra(swarden, line):
    run = swarden(WITHOUT_TORCH, *line.split())

    assert run.returncode == 2
    [told] = run.stderr.splitlines()
    assert told.endswith("; pip install 'swarden[engine]'")


def cannot_import(engine, why):
    who = f"engine {engine!r} of the package {engine} ({engine}:Target)"
    return f"{who} cannot be imported: {why}; repair or uninstall {engine}"


def test_engines_lists_an_engine_that_cannot_be_imported_with_a_remedy(swarden, tmp_path):
    run = swarden(WITHOUT_TORCH, "engines")

    assert run.returncode == 0, run.stderr
    lines = {line.removeprefix("engine ").split()[0].strip("'"): line for line in run.stdout.splitlines()}
    assert lines["blockserve"] == f"blockserve 1.2.0 ({SPEC})"
    assert lines["exits"] == cannot_import("exits", f"SystemExit ({tmp_path}/exits.py:2)")
    assert lines["has_no_version"] == cannot_import("has_no_version", f"SystemExit: 1 ({tmp_path}/has_no_version.py:3)")
    assert lines["swarden"].endswith("; pip install 'swarden[engine]'")


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        pytest.param("exits", "SystemExit ({}/exits.py:2)", id="always"),
        pytest.param("exits_in_worker", "SystemExit: 3 ({}/exits_in_worker.py:3)", id="in-the-workers"),
    ],
)
def test_campaign_on_an_engine_that_exits_on_import_is_one_line(swarden, tmp_path, engine, why):
    run = swarden(WITHOUT_TORCH, "fuzz", "--engine", engine, "--runs", 8, "--workers", 2)

    assert run.returncode == 2
    assert run.stderr.splitlines()[-1] == f"swarden: {cannot_import(engine, why.format(tmp_path))}"


def test_engine_that_exits_in_a_run_is_one_line(swarden, tmp_path):
    """Otherwise the exit code 0 of the engine would be that of the command."""
    (tmp_path / "it.oplog").write_text('{"format":3,"engine":"exits_in_run","configs":[{}]}\n{"op":"submit"}\n')

    run = swarden(WITHOUT_TORCH, "show", "it.oplog")

    assert (run.returncode, run.stdout) == (2, "")
    [line] = run.stderr.splitlines()
    assert line.startswith(f"swarden: SystemExit: 0 ({tmp_path}/exits_in_run.py:3); ")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        pytest.param("swarden sho", ["show"], id="command"),
        pytest.param("swarden replay --rep", ["--repeat"], id="option"),
    ],
)
def test_completion_needs_no_torch(swarden, words, completed):
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}

    run = swarden(WITHOUT_TORCH, _SWARDEN_COMPLETE="complete_bash", **environment)

    assert (run.returncode, run.stdout.split()) == (0, completed)


def test_completion_script_can_be_printed(swarden):
    run = swarden(WITHOUT_TORCH, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert run.returncode == 0, run.stderr
    assert "_SWARDEN_COMPLETE=complete_bash" in run.stdout
