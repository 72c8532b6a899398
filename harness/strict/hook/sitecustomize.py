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
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

VARIABLE = "SWARDEN_ATTACH"  # the setting, as JSON; with the modules of the scheduler and of its attachment
HERE = Path(__file__).resolve().parent
NOT_ATTACHED = "swarden: NOT ATTACHED to the scheduler, which runs unchecked: internal error of swarden"
SWARDEN = str(Path(__file__).absolute().parents[4])  # above the package; in a checkout it holds links


class AfterImport(MetaPathFinder):
    """Calls a function with a module once that has been imported."""

    def __init__(self, module: str, function: Callable[[ModuleType], object]) -> None:
        self._module, self._function = module, function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._function(module)

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]  # a loader is of one module
        return spec


def attach_or_say(setting: dict[str, str], module: ModuleType) -> None:
    try:
        attach(module, setting)
    except Exception:
        sys.stderr.write(f"{NOT_ATTACHED}\n{traceback.format_exc()}")


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


if __name__ == "sitecustomize":
    if VARIABLE in os.environ:
        of_process = json.loads(os.environ[VARIABLE])
        sys.meta_path.insert(0, AfterImport(of_process["scheduler"], partial(attach_or_say, of_process)))
    run_hidden_sitecustomize()
