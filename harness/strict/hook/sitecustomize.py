"""Attaches the strict check to the scheduler of an engine, in each Python process that has this folder on its path.

Python imports `sitecustomize` when it starts. This module then runs the `sitecustomize` that it hides, and waits for
the import of the scheduler. It imports nothing of swarden before that.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

VARIABLE = "SWARDEN_ATTACH"  # the setting, as JSON; with the modules of the scheduler and of its attachment
HERE = Path(__file__).resolve().parent
NOT_ATTACHED = "swarden: NOT ATTACHED to the scheduler, which runs unchecked: internal error of swarden"
SWARDEN = str(Path(__file__).absolute().parents[4])  # above the package; in a checkout it holds links


class SchedulerFinder(MetaPathFinder):
    """Calls `attach` with the scheduler's module once that has been imported."""

    def __init__(self, setting: dict[str, str]) -> None:
        self._setting = setting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._setting["scheduler"]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_attach(module: ModuleType) -> None:
                execute(module)
                try:
                    attach(module, self._setting)
                except Exception:
                    sys.stderr.write(f"{NOT_ATTACHED}\n{traceback.format_exc()}")

            spec.loader.exec_module = execute_and_attach  # type: ignore[method-assign]  # a loader is of one module
        return spec


def attach(module: ModuleType, setting: dict[str, str]) -> None:
    """Attach the check to all schedulers of this module; a process that lacks a package of swarden goes unchecked."""
    if SWARDEN not in sys.path:
        sys.path.append(SWARDEN)  # last, so that it hides nothing of the command's environment
    status = importlib.import_module("swarden.harness.strict.status")
    status.log_to_standard_error()
    status.report(setting, status.State.IMPORTED)
    try:
        importlib.import_module(setting["attachment"]).wrap(module, setting)
    except ImportError as error:
        [*_, place] = traceback.extract_tb(error.__traceback__)
        what = f"{error} ({place.filename}:{place.lineno})"
        status.refused(setting, f"{what}; install swarden in the environment of the command")
    except Exception as error:
        status.refused(setting, "internal error of swarden", error)


def run_hidden_sitecustomize() -> None:
    """Run the sitecustomize module that Python would have imported without this one."""
    others = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    spec = PathFinder.find_spec(__name__, others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


if VARIABLE in os.environ:
    sys.meta_path.insert(0, SchedulerFinder(json.loads(os.environ[VARIABLE])))
if __name__ == "sitecustomize":
    run_hidden_sitecustomize()
