"""The releases of lmdeploy that the tests use."""

import pytest

RELEASES = ("0.16.0", "0.18.0")  # `make test-engines` installs these


@pytest.fixture(scope="session", params=RELEASES)
def release(request):
    """The version of each release in turn."""
    return request.param


@pytest.fixture(scope="session")
def on_release(in_process_of):
    """Calls a function in the process of a release: `on_release(version, function, *arguments)`."""
    return lambda version, function, *arguments: in_process_of(f"lmdeploy=={version}", function, *arguments)
