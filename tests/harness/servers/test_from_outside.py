"""What is known of a failure over HTTP: bugs that flags avoid, and the end of its ops behind the port."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import Changes
from swarden.harness.core.known_bug import EMBARGO, known_bugs_in
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.engines.server import target
from swarden.harness.engines.server.apis import APIS, release_of
from swarden.harness.engines.server.process import Server
from swarden.harness.search.findings import Reporting
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from tests.harness.servers.some_servers import ONE, free_port, log_at, mortal
from tests.harness.servers.test_inner_check import FAILING
from tests.harness.some_bugs import OF_BLOCKS, WHOLE, write_log, write_package

BUG = """
title = "the server dies of answers with more tokens than its last argument"
effect = "the server dies"
cause = "made here"
first = "1.0.0"
tried = "1.0.0"
fingerprints = ["ServerDied/RuntimeError"]
searched = "2026-11-29"
verdict = "not worth posting"
avoided_by = """


@pytest.fixture
def finding(monkeypatch, tmp_path):
    """A finding on a server that dies of its first request, and that this process starts."""
    monkeypatch.chdir(tmp_path)
    port = free_port()
    log = log_at(monkeypatch, url := f"http://127.0.0.1:{port}", ONE, api="openai", max_context_len=64)
    Server(url, mortal(port, 1)).publish()
    failure = run_log(log).failure
    assert failure is not None
    yield Finding(failure.fingerprint, log.as_regression(failure.fingerprint), 0.0)
    target.connection().close()
    target.connection.cache_clear()


@pytest.mark.parametrize(
    ("flags", "bugs"),
    [
        ('"9"', ("a-bug",)),
        ('"1"', ()),
        ('"no-number"', ()),
        ('"9"\ncaused_by = "--swa-full"', ()),
        ('"9"\napi = "llama.cpp"', ()),
    ],
)
def test_failure_that_flags_avoid_is_of_a_known_bug(flags, bugs, finding, monkeypatch, tmp_path):
    (tmp_path / "server").mkdir()
    of_api = "" if "api =" in flags else '\napi = "openai"'
    (tmp_path / "server/a-bug.toml").write_text(BUG + flags + of_api)
    monkeypatch.setenv(EMBARGO, str(tmp_path))

    report = Reporting(tmp_path / "findings", ShrinkBudget(cpu_seconds=60)).report(finding)

    assert report.cause.bugs == bugs
    assert (report.path is None) == bool(bugs)


def test_each_bug_that_flags_avoid_is_of_an_api():
    bugs = known_bugs_in(Path(target.__file__).parent / "findings").values()
    assert {bug.api for bug in bugs if bug.avoided_by} <= APIS.keys()


@pytest.mark.parametrize(("mutant", "end"), [("B13", "fail behind the port of swarden, too"), (None, "pass behind")])
def test_ops_are_tried_behind_the_port_of_the_release(mutant, end, finding, monkeypatch, tmp_path):
    (tmp_path / "findings").write_text("a file in the place of the folder")
    inner = load_log(FAILING)
    monkeypatch.setattr(target.ServerTarget, "behind_port", lambda *_: ("swarden", inner.header.configs))
    finding = finding.changed(log=OpLog(finding.log.header, inner.ops))

    with Changes(mutant).planted(target_of("swarden")):
        report = Reporting(tmp_path / "findings", ShrinkBudget(cpu_seconds=0)).report(finding)

    said = str(report.story[-1])
    assert f"these ops {end}" in said
    assert said.endswith(": in memory only") == (mutant is not None)


def test_known_bug_with_whose_fix_the_ops_pass_behind_the_port_is_named(finding, monkeypatch, tmp_path):
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    inner = load_log(write_log(tmp_path / "some.oplog", WHOLE))
    monkeypatch.setattr(target.ServerTarget, "behind_port", lambda *_: ("blockserve", inner.header.configs))
    finding = finding.changed(log=OpLog(finding.log.header, inner.ops))

    report = Reporting(tmp_path / "findings", ShrinkBudget(cpu_seconds=0)).report(finding)

    target_of.cache_clear()
    assert str(report.story[-1]).endswith(f"they pass with the fix of {OF_BLOCKS}")


def test_engine_behind_the_port_has_the_release_and_the_sizes_of_the_server():
    assert (release_of("vllm", "0.32.0+cpu"), release_of("vllm", None)) == ("vllm==0.32.0", None)
    reported = {"block_size": 16, "window": 40, "capacity": 1152, "max_context_len": 512}

    behind = target.ServerTarget().behind_port([{"release": "swarden", **reported}])

    assert behind is not None
    engine, [config] = behind
    sizes = {name: config[name] for name in ("page_size", "sliding_window", "full_pages", "max_context_len")}
    assert (engine, [*sizes.values()]) == ("swarden", [16, 40, 72, 512])
    assert target.ServerTarget().behind_port([reported]) is None
