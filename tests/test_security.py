"""SECURITY.md lists the limits as they are."""

import re
from pathlib import Path

import pytest

import swarden.engine_under_test.limits
import swarden.harness.core.limits

PAGE = Path(__file__).parents[1] / "SECURITY.md"


@pytest.mark.parametrize(
    "module", [swarden.engine_under_test.limits, swarden.harness.core.limits], ids=["engine", "core"]
)
def test_page_lists_each_limit_with_its_value(module):
    tables = [
        part
        for part in PAGE.read_text().split("\n\n")
        if f"`{module.__name__.removeprefix('swarden.').replace('.', '/')}.py`" in part
    ]
    listed = dict(re.findall(r"^\| `([A-Z_]+)` \| (\S+) \|", "\n".join(tables), flags=re.MULTILINE))

    limits = {name: value for name, value in vars(module).items() if name.isupper()}
    assert listed == {name: f"{value:,}" if isinstance(value, int) else f"{value:g}" for name, value in limits.items()}
