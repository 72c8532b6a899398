"""Functions of an engine's release, taken from its files without an import of the release."""

import ast
import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NUM_CASES = 200 if DEVICE == "cuda" else 12  # the interpreter of triton needs a second for a few launches
HEADER = "import functools\nimport torch\nimport triton\nimport triton.language as tl\nfrom typing import *\n"


class Taken:
    """Functions and classes of one file; each stands in a module of its own with the names that it needs."""

    def __init__(self, release: Path, folder: Path) -> None:
        self._release, self._folder = release, folder

    def __call__(self, file: str, *names: str, **known: Any) -> Any:
        """A module with these definitions of a file, `Class.method` for a method.

        `known` are the values of names that they use beside torch, triton and each other.
        """
        path = self._release / file
        if not path.exists():
            pytest.skip(f"{path} is not installed: swarden engines install")
        source = path.read_text()
        parts = ["from __future__ import annotations\n" * ("from __future__ import annotations" in source), HEADER]
        parts += [_definition(source, name) for name in names]
        made = self._folder / f"taken_{'_'.join([Path(file).stem, *names]).replace('.', '_')}.py"
        made.write_text("\n".join(parts))
        spec = importlib.util.spec_from_file_location(made.stem, made)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module).update(known)
        spec.loader.exec_module(module)
        return module


def _definition(source: str, name: str) -> str:
    """The lines of a definition, with its decorators but without @staticmethod and @property."""
    node: Any = ast.parse(source)
    for part in name.split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == part)
    first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    kept = [line for line in lines if line.strip() not in ("@staticmethod", "@property")]
    return textwrap.dedent("\n".join(kept)) + "\n"


def on_device(value: Any) -> Any:
    """The same on the device of the kernels: a copy of a tensor, and any other value as it is."""
    return value.clone().to(DEVICE) if isinstance(value, torch.Tensor) else value


def integers(values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def power_of_2(number: int) -> int:
    """The least power of 2 that is no smaller."""
    return 1 << (number - 1).bit_length()


def module_of(**names: Any) -> ModuleType:
    module = ModuleType("stand_ins")
    vars(module).update(names)
    return module
