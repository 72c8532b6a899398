"""The module that attaches the strict check in each process of a server."""

import logging
import os

import pytest

from swarden.harness.strict import status
from swarden.harness.strict.hook import sitecustomize

MISSING = "No module named 'no_such_module'"


@pytest.fixture(autouse=True)
def logger(monkeypatch):
    """The logger without handlers, as in the process of a server; an engine that was imported disables all logs."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.NOTSET)
    for one in (status.LOGGER, logging.getLogger()):
        monkeypatch.setattr(one, "handlers", [])
    level = status.LOGGER.level
    status.LOGGER.setLevel(logging.NOTSET)
    yield
    status.LOGGER.setLevel(level)


def test_missing_package_of_the_attachment_is_named_with_the_file_that_imports_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "lacking.py").write_text("\nimport no_such_module")
    monkeypatch.syspath_prepend(tmp_path)

    sitecustomize.attach(sitecustomize, {"attachment": "lacking", status.FOLDER: str(tmp_path)})

    assert f" swarden: NOT ATTACHED to the scheduler, which runs unchecked: {MISSING} ({tmp_path}/lacking.py:2); " in (
        capsys.readouterr().err
    )
    assert MISSING in (tmp_path / f"{os.getpid()}.refused").read_text()


def test_error_of_the_attachment_is_a_refusal(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)

    sitecustomize.attach(sitecustomize, {"attachment": "failing", status.FOLDER: str(tmp_path)})

    assert (tmp_path / f"{os.getpid()}.refused").read_text() == "internal error of swarden"


def test_attachment_is_shown_although_only_the_engine_configures_a_logger(capsys):
    status.log_to_standard_error()

    status.attached({"level": "audit", "out": "logs"})

    assert capsys.readouterr().err.endswith(" swarden: attached to the scheduler, level audit, op-logs in logs\n")


def test_line_that_the_log_of_the_server_shows_is_not_shown_twice(capsys):
    status.log_to_standard_error()
    logging.getLogger().addHandler(logging.StreamHandler())

    status.attached({"level": "audit", "out": "logs"})

    assert capsys.readouterr().err == "swarden: attached to the scheduler, level audit, op-logs in logs\n"
