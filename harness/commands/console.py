"""Where commands write: results to standard output, progress and remarks to standard error."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PIPED_WIDTH = 240  # columns, for tables that nobody's terminal cuts
OUT = Console(highlight=False, soft_wrap=True, width=None if sys.stdout and sys.stdout.isatty() else PIPED_WIDTH)
ERR = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object and nothing else."""
    OUT.print(json.dumps(result, indent=2), markup=False)


def progress() -> Progress:
    """A live line on standard error; silent where that is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal)
