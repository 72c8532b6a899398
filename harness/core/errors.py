"""Errors that the user can correct."""

INSTALL_ENGINE = "pip install 'swarden[engine]'"  # the remedy if a package of swarden's own engine is missing


class UsageError(Exception):
    """A command or a file that cannot be used: one line with the place, the value found and the value wanted.

    The command line prints it and exits with 2.
    """


class RemoteError(Exception):
    """An error of an engine in another process, with its fingerprint there."""

    def __init__(self, text: str, fingerprint: str) -> None:
        super().__init__(text, fingerprint)
        self.fingerprint = fingerprint

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidConfig(UsageError):
    """A configuration that an engine cannot be built from; the text names the setting and its value."""


class RunTooLarge(UsageError):
    """A run needs more memory or steps than the limits allow; the text names the limit."""
