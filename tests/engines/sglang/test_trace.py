"""A release serves recorded traffic."""

import json
import subprocess
import sys

from tests.harness.traces.some_traces import chatty_rows, write_trace

LINE = (sys.executable, "-m", "swarden.harness.cli", "trace", "--engine", "sglang==0.5.23")


def run(path, *options):
    return subprocess.run([*LINE, path, *options], capture_output=True, text=True, timeout=200, check=False)


def test_trace_is_served_and_checked(tmp_path):
    served = run(write_trace(tmp_path / "t.jsonl", chatty_rows(20)), "--json")

    told = json.loads(served.stdout)
    assert (served.returncode, told["requests"], told["violations"]) == (0, 20, 0), served.stderr
    assert told["pools"]["full"]["peak"] > 0
    assert told["pools"]["full"]["evicted"] is None


def test_option_of_the_own_engine_is_refused(tmp_path):
    served = run(write_trace(tmp_path / "t.jsonl", chatty_rows(2)), "--overlap")

    assert (served.returncode, served.stdout) == (2, "")
    assert served.stderr == "swarden: --overlap is not for the engine sglang; leave it out\n"
