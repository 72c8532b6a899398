"""Errors that the user can correct."""

INSTALL_ENGINE = "pip install 'swarden[engine]'"  # the remedy if a package of swarden's own engine is missing


class UsageError(Exception):
    """A command or a file that cannot be used: one line with the place, the value found and the value wanted.

    The command line prints it and exits with 2.
    """


class InvalidConfig(UsageError):
    """A configuration that an engine cannot be built from; the text names the setting and its value."""


class RunTooLarge(UsageError):
    """A run needs more memory or steps than the limits allow; the text names the limit."""
