"""How a server fails as a whole: no answer shows it."""

from swarden.harness.core.errors import RemoteError


class ServerDied(RemoteError):
    """The process of the server has ended, or does not answer any more."""

    def __init__(self, line: str, cause: str) -> None:
        super().__init__(f"the server has died: {line}", f"ServerDied/{cause}")


class ServerHangs(RemoteError):
    """Requests are not answered, and nothing is computed."""

    def __init__(self, waiting: int, silent_s: float) -> None:
        text = f"{waiting} requests are not answered, and no token was computed for {silent_s:.0f} s"
        super().__init__(text, "ServerHangs")


class InvalidRequestFails(RemoteError):
    """The server dies, or fails with an error of its own, where it is to refuse an invalid request with status 400."""

    def __init__(self, invalid: str, line: str, cause: str) -> None:
        super().__init__(f"an invalid request ({invalid}) is not refused: {line}", f"InvalidRequest/{cause}")
