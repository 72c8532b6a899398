"""The releases of transformers that the tests use."""

import pytest

RELEASES = ("5.19.0", "5.24.0")  # `make test-engines` installs these


@pytest.fixture(scope="session", params=RELEASES)
def release(request):
    """The version of each release in turn."""
    return request.param


@pytest.fixture(scope="session")
def on_release(in_process_of):
    """Calls a function in the process of a release: `on_release(version, function, *arguments)`."""
    return lambda version, function, *arguments: in_process_of(f"transformers=={version}", function, *arguments)
