"""A package of a user with three bugs that have one fingerprint, two of which are known and have a fix."""

import json
from pathlib import Path

from tests.harness.some_targets import swarden_in, write_blockserve

STUCK = "stuck/drain"
HEALTHY = "if need > len(self.pool.free_blocks):"
ALL_BLOCKS = "need == self.pool.num_blocks"  # a request of this kind is never admitted
ODD_PROMPT = "len(self.waiting[0].prompt) % 5 == 3"
LONG_OUTPUT = "self.waiting[0].max_new_tokens > 11"  # no known bug
BUG = """
title = "A request is never admitted: {condition}"
effect = "the engine stops answering"
cause = "A condition of the admission."
first = "0.0.1"
tried = "9.9.9"
fingerprints = ["{fingerprint}"]
searched = "2026-11-23"
verdict = "comment on pull 7"
upstream = [{{ kind = "pull", number = 7, state = "open", relation = "fixes it" }}]

[[fixes]]
releases = ["0.0.1", "9.9.9"]

[[fixes.hunks]]
at = "blockserve.engine:Engine._admit"
before = "{condition}"
after = "{fixed}"
"""
WHOLE, ODD, LONG = (62, 2), (8, 2), (9, 12)  # requests that meet one of these each
OF_BLOCKS, OF_PROMPTS, USELESS = "all-blocks-never-admitted", "odd-prompt-never-admitted", "fix-without-effect"


def write_package(folder: Path) -> None:
    """The package `blockserve`, whose engine leaks nothing, but never admits three kinds of requests."""
    write_blockserve(folder)
    engine = folder / "blockserve/engine.py"
    source = engine.read_text().replace("request.blocks[:num_full]", "request.blocks")
    assert source.count(HEALTHY) == 1
    never = " or ".join([ALL_BLOCKS, ODD_PROMPT, LONG_OUTPUT])
    engine.write_text(source.replace(HEALTHY, f"{HEALTHY.removesuffix(':')} or {never}:"))
    findings = folder / "blockserve/findings"
    findings.mkdir()
    for name, condition, fixed in (
        (OF_BLOCKS, ALL_BLOCKS, "False"),
        (OF_PROMPTS, ODD_PROMPT, "False"),
        (USELESS, "> len(self.pool.free_blocks)", ">= len(self.pool.free_blocks) + 1"),
    ):
        text = BUG.format(condition=condition, fixed=fixed, fingerprint=STUCK)
        (findings / f"{name}.toml").write_text(text)
    info = folder / "blockserve-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: blockserve\nVersion: 1.0.0\n")
    (info / "RECORD").write_text("blockserve/__init__.py,,\nblockserve/engine.py,,\n")
    (info / "top_level.txt").write_text("blockserve\n")
    (info / "entry_points.txt").write_text("[swarden.engines]\nblockserve = blockserve.target:DemoTarget\n")


def write_log(path: Path, *prompts: tuple[int, int]) -> Path:
    """An op-log of requests, each with the lengths of its prompt and of its output; 16 blocks of 4 tokens."""
    requests = [{"op": "submit", "tokens": [*range(length)], "max_new_tokens": most} for length, most in prompts]
    header = {"format": 3, "engine": "blockserve", "configs": [{}], "expected": STUCK}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *requests, {"op": "drain"})))
    return path


def swarden_with_bugs(folder: Path):
    """Runs a command line in the folder, where the package with the bugs is installed."""
    write_package(folder)
    command = swarden_in(folder)
    command.folder = folder
    return command
