"""swarden bench measures the engines that it is given."""

import json

from swarden.harness.bench import checked_step
from tests.harness.some_commands import swarden


def test_parts_of_a_checked_step_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(checked_step, "CPU_SECONDS", 0.01)
    monkeypatch.setattr(checked_step, "REQUESTS", 10)

    measured = swarden("bench", "--part", "parts", "--json", cwd=tmp_path)

    cases = json.loads(measured.stdout)["parts"]
    assert list(cases) == [f"us of a checked step of swarden, pages of {size}" for size in (1, 4)]
    assert all(figures["steps a second of CPU"] > 0 < figures["laws"] for figures in cases.values())


def test_strict_check_of_another_engine_is_refused(tmp_path):
    refused = swarden("bench", "--part", "strict", "--engine", "demo", cwd=tmp_path)

    assert refused.returncode == 2
    assert refused.stderr == "swarden: --engine demo: only --part parts measures another engine; give only that\n"
