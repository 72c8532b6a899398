"""Commands as functions of this process."""

import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from swarden.harness import cli
from swarden.harness.commands.console import OUT, PIPED_WIDTH


def swarden(*arguments: object, cwd: Path, **environment: str) -> CompletedProcess[str]:
    """Call a command in the folder `cwd`, with this environment added; it is as before afterwards.

    A test whose subject is the process needs `swarden_process`.
    """
    words, before = [str(word) for word in arguments], dict(os.environ)
    with (
        chdir(cwd),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as errors,
        pytest.MonkeyPatch.context() as changed,
    ):
        changed.setattr(sys, "argv", ["swarden", *words])
        changed.setattr(OUT, "width", PIPED_WIDTH)
        os.environ |= {"COLUMNS": "200"} | environment
        try:
            code = cli.run(cli.start)
        finally:
            os.environ.clear()
            os.environ |= before
    return CompletedProcess(words, code, out.getvalue(), errors.getvalue())
