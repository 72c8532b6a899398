"""A hook of pytest for all tests."""

import gc


def pytest_collection_finish() -> None:
    """Leave all that was imported out of the collections of garbage, of which pytest makes several at its end."""
    gc.freeze()
