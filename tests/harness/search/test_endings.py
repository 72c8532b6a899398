"""A finding of a checkout is replayed on the nearest release."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.replay import Replays, Verdict, not_run
from swarden.harness.search import endings
from swarden.harness.search.result import Finding


@pytest.mark.parametrize(
    ("version", "is_release", "installed", "base"),
    [
        pytest.param("checkout-head", False, ["0.5.22", "0.5.23"], "0.5.23", id="newest-for-one-without-a-version"),
        pytest.param("0.5.22.dev3", False, ["0.5.17", "0.5.22", "0.5.23"], "0.5.22", id="not-newer"),
        pytest.param("0.5.10", False, ["0.5.17", "0.5.23"], "0.5.17", id="oldest-if-all-are-newer"),
        pytest.param("main", False, ["0.5.17", "0.5.23"], "0.5.23", id="newest-for-a-version-of-another-form"),
        pytest.param("checkout-head", False, [], "", id="none-installed"),
        pytest.param("0.5.23", True, ["0.5.22"], "", id="release"),
    ],
)
def test_base_of_a_checkout_is_the_nearest_release(version, is_release, installed, base):
    releases, sources = SimpleNamespace(installed=lambda: installed), SimpleNamespace(is_release=is_release)
    target: Any = SimpleNamespace(releases=releases, sources=sources, version=lambda: version)

    assert endings.base_of(target) == base


@pytest.mark.parametrize(
    ("is_stopped", "on_base"),
    [
        pytest.param(
            False, ["passes on 1.0", "is no log on 1.0", "fails on 1.0, too"], id="those-that-pass-come-first"
        ),
        pytest.param(True, ["", "", ""], id="none-behind-an-interrupt"),
    ],
)
def test_findings_are_replayed_on_the_base(monkeypatch, is_stopped, on_base):
    verdicts = {"a": Verdict.FAILED, "b": None, "c": Verdict.FIXED}
    ends = {name: Replays(one, (), 0, 1) if one else not_run("is no log") for name, one in verdicts.items()}
    monkeypatch.setattr(endings, "WorkerGroup", lambda *_, **__: nullcontext())
    monkeypatch.setattr(endings, "judge", lambda _group, _log, _release, names, **_: ends[names[0]])
    log = OpLog(Header(engine="demo", configs=[{}]), [])
    found = [Finding(name, log, 0.0, path=Path(name)) for name in ends]

    for _ in endings.beside(found, "1.0", lambda: is_stopped):
        pass

    assert [one.on_base for one in found] == on_base
