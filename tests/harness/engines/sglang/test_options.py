"""The options of requests to SGLang."""

import pytest

from swarden.harness.core.port import NAMESPACES_PER_ADAPTER, Submission
from swarden.harness.engines.sglang.scheduler import number_of


@pytest.mark.parametrize(
    ("extra_key", "salt", "adapter"),
    [(None, 0, 0), ("3", 3, 0), ("lora2", 0, 2), ("3lora2", 3, 2)],
    ids=["neither", "salt", "adapter", "both"],
)
def test_extra_key_of_the_tree_is_numbered_as_the_namespace_of_its_requests(extra_key, salt, adapter):
    """A release appends the id of the adapter to the extra key of the client."""
    namespace = number_of(extra_key)
    sent = Submission([], 1, (), 0, namespace, adapter=adapter)

    assert (sent.salt, namespace - sent.salt) == (salt, adapter * NAMESPACES_PER_ADAPTER)
