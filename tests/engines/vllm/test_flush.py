"""A flush reports what the reset of the release reports, and its unexpected errors."""

from unittest.mock import Mock

from swarden.harness.core.port import Submission
from tests.engines.vllm.some_requests import core_of, finish

DEFERS = {"asynchronous": True, "external_len": 16, "late_loads": True}  # a newer release defers frees with this


def flushes_around_a_request(engine):
    built = core_of(engine, {})
    built.submit(Submission(range(8), 2, (), 0, 0))
    built.step()
    running = built.flush()
    finish(built)
    return running, built.flush()


def error_of_a_reset(engine):
    """The error that leaves a flush if the release's reset fails while no block waits for a pass."""
    built = core_of(engine, DEFERS)
    built.built.core.reset_prefix_cache = Mock(side_effect=RuntimeError("broken"))
    try:
        built.flush()
    except RuntimeError as error:
        return str(error)
    return None


def test_flush_has_no_effect_while_a_request_has_blocks(release, on_release):
    assert on_release(release, flushes_around_a_request, f"vllm=={release}") == (False, True)


def test_error_of_a_reset_is_not_swallowed_while_no_block_waits(release, on_release):
    assert on_release(release, error_of_a_reset, f"vllm=={release}") == "broken"
