"""The commands in the fenced blocks of README.md and docs/ run, shortened, in a folder with the files they name."""

import re
import shlex
import shutil
import subprocess
from glob import glob
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.nightly.archive import Archive, Sighting, Status
from swarden.harness.nightly.night import Order, begin
from swarden.harness.search.findings import write
from tests.engine_under_test.model.checkpoints import write_checkpoint
from tests.engine_under_test.model.tokenizers import write_tokenizer
from tests.harness.some_commands import swarden
from tests.harness.some_processes import run_warm
from tests.harness.traces.some_traces import row, write_trace
from tests.test_docs import FENCED, PAGES, REMARK

ROOT = Path(__file__).parents[3]
B18 = ROOT / "tests" / "quality" / "oplogs" / "B18.oplog"
COMMAND = re.compile(r"((?:[A-Z_]+=\S+ )*)((?:swarden|pytest|make|pip|dask) .*)")
SKIPPED = {  # a part of a command: the reason for which it does not run here
    "lmdeploy": "needs a release of lmdeploy; tests/engines runs with two",
    "sglang": "needs a release of SGLang; tests/engines runs with two",
    "vllm": "needs a release of vLLM; tests/engines runs with several",
    "transformers": "needs a release of transformers; tests/engines runs with two",
    "swarden gate": "needs checkouts of an engine; test_gate makes some",
    "--url": "needs a server; tests/harness/servers drives some",
    "swarden serve": "serves until it is interrupted; tests/harness/servers drives its front",
    " --install": "downloads releases",
    "bisect": "needs two releases; test_bisect runs it on two builds of an engine",
    "archive draft": "needs releases; test_draft runs it on three builds of an engine",
    "blockserve": "needs a package of a user; test_your_engine installs and drives it",
    "tcp://": "needs the machines of a cluster; test_cluster runs one on loopback",
    "dask ": "starts a process of a cluster that does not end",
    "pip ": "installs packages",
    "make ": "runs these tests, or installs packages",
    "--as script": "needs a release of an engine; test_programs runs the programs of one",
    "swarden bench": "takes minutes; tests/harness/bench measures its cases",
    "mutants matrix": "replays the op-logs of all bugs; tests/quality compares its data",
}
WORDS = {"N": "3", "K": "8", "[ID…]": "B46", "FILE.oplog…": "FILE.oplog"}
SEED = 1  # of nights: the canary that it chooses is found within a few runs
SHORTER = {  # options behind those of the page, of which the last counts
    "fuzz": "--runs 2 --workers 1",
    "fuzz --exhaustive": "--exhaustive 1",
    "nightly": f"--runs 2 --minutes 0.01 --workers 1 --seed {SEED}",
    "mutants run": "--seeds 1",
    "trace": "--limit 2 --scale 8",
    "generate": "--max-new-tokens 2",
}
MISUSE, FAULT, INTERRUPTED = 2, 70, 130


def commands_of(text: str) -> list[str]:
    """The commands in the fenced blocks, without their remarks."""
    lines = [REMARK.sub("", line.strip()) for block in FENCED.findall(text) for line in block.splitlines()]
    return [line for line in lines if COMMAND.fullmatch(line)]


COMMANDS = sorted({line for page in PAGES for line in commands_of(page.read_text())})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A small checkpoint with its tokenizer."""
    folder = Path(tmp_path_factory.mktemp("checkpoint"))
    write_checkpoint(folder, "gemma3", vocab_size=write_tokenizer(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Path) -> Path:
    """A folder with every file that the pages name: SMALL and DIR are checkpoints, and DIR is an archive, too."""
    log = load_log(B18)
    archive = Archive(tmp_path / ".swarden" / "archive")
    found = archive.finding("swarden", "FINGERPRINT")
    path = write(log, "FINGERPRINT", found.folder)
    found.add(Sighting(night="2026-11-24-01-aaaa", engine="swarden", status=Status.NEW, log=path.name))
    night = begin(archive, Order(["swarden"], "swarden nightly", minutes=0.01, runs=2, profile="smoke", seed=SEED))
    (archive.nights_folder / "NAME").symlink_to(archive.nights_folder / night.name)
    for folder in ("findings", "first"):
        write(log, "NAME", tmp_path / ".swarden" / folder)
    for name in ("FILE.oplog", "found.oplog", "tests/quality/oplogs/B18.oplog", "tests/oplogs/B18.oplog"):
        log.save(tmp_path / name)
    write_trace(tmp_path / "FILE", [row([0, 1], output_length=4)])
    (tmp_path / "FILE.py").write_text(
        "from swarden.harness.engines.own.mutants.catalog import BY_ID\nfrom dataclasses import replace\n"
        "MINE = replace(BY_ID['B46'], id='MINE')\n"
    )
    for name in ("DIR", "SMALL"):
        shutil.copytree(checkpoint, tmp_path / name)
    (tmp_path / "DIR" / "findings").symlink_to(archive.findings_folder)
    return tmp_path


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command, with the words of this folder in place of the page's, shortened."""
    settings, command = COMMAND.fullmatch(line).groups()  # type: ignore[union-attr]  # COMMANDS match
    words = [WORDS.get(word, word) for word in shlex.split(command)]
    words = [one for word in words for one in (sorted(glob(word, root_dir=folder)) if "*" in word else [word])]
    fitting = [beginning for beginning in SHORTER if " ".join(words[1:]).startswith(beginning)]
    words += SHORTER[max(fitting, key=len)].split() if fitting else []
    environment = dict(setting.split("=") for setting in settings.split())
    if words[0] == "pytest":
        return run_warm("pytest", words[1:], cwd=folder, environment=environment)
    return swarden(*words[1:], cwd=folder, **environment)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_documentation_runs(line, folder):
    """The command ends by itself and prints something; it may have findings, but no misuse or internal error."""
    for part, reason in SKIPPED.items():
        if part in line:
            pytest.skip(reason)

    done = run(line, folder)

    assert done.returncode not in (MISUSE, FAULT, INTERRUPTED), done.stderr
    assert done.returncode >= 0
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_each_reason_to_skip_fits_a_command_of_the_pages():
    assert [part for part in SKIPPED if not any(part in line for line in COMMANDS)] == []
