"""Imports that can fail: of optional packages, and of code that is not part of swarden."""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import requires
from pathlib import Path
from traceback import extract_tb

from swarden.harness.core.errors import CannotImport, UsageError, text_of

OF_EXTRA = re.compile(r"""([\w.-]+)[^;\[]*;\s*extra\s*==\s*["'](\w+)["']""")  # a requirement in the metadata of swarden
NO_PLACES = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen ")
BACKPORT = "/importlib_metadata/"  # where it is imported, its finder takes the place of Python's
REPAIR = "repair that package"


@contextmanager
def importing(
    what: str,
    repair: str = REPAIR,
    *,
    can_install: bool = True,
    catches: type[BaseException] | tuple[type[BaseException], ...] = ImportError,
    raises: type[CannotImport] = CannotImport,
) -> Iterator[None]:
    """Raise CannotImport for an exception of the imported code, with the file that raised it and the remedy.

    The remedy is `repair`, unless a package is missing that the user `can_install`.  A UsageError and a
    KeyboardInterrupt are not changed.
    """
    try:
        yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not isinstance(error, catches):
            raise
        text = f"{what} cannot be imported: {one_line(error)}{place_of(error)}"
        raise raises(text, _remedy(error, repair, can_install=can_install)) from error


def one_line(error: BaseException) -> str:
    """The text of an exception, with its type unless it is an ImportError."""
    kind = "" if isinstance(error, ImportError) else type(error).__name__
    return ": ".join(filter(None, [kind, " ".join(text_of(error).split())]))


def place_of(error: BaseException) -> str:
    """The last line that ran outside of Python's own code and harness/core; "" if there is none."""
    frames = extract_tb(error.__traceback__)
    places = [frame for frame in frames if not frame.filename.startswith(NO_PLACES) and BACKPORT not in frame.filename]
    return f" ({places[-1].filename}:{places[-1].lineno})" if places else ""


def _remedy(error: BaseException, repair: str, *, can_install: bool) -> str:
    name = (isinstance(error, ImportError) and error.name) or ""
    package, is_part, _ = name.partition(".")
    if extra := _extra_of(package):
        return f"pip install 'swarden[{extra}]'"
    is_missing = isinstance(error, ModuleNotFoundError) and package and not is_part
    return f"install {package}" if is_missing and can_install else repair


def _extra_of(package: str) -> str:
    """The extra of swarden that installs a package; "" if there is none."""
    extras = [match.groups() for match in map(OF_EXTRA.match, requires("swarden") or ()) if match is not None]
    return next((extra for name, extra in extras if name.replace("-", "_") == package and extra != "test"), "")
