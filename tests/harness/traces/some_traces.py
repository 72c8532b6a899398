"""Small traces for tests."""

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from swarden.harness.core.mutant import Hunk, Mutant

BLOCK_LEN = 512
RELEASE = "swarden.engine_under_test.cache.departures:Departures.release"
FREES = "ledgers.free(handles, owner=record.owner, cause=cause, after=after, lacks=freed)\n"
LEAK = Mutant("leak", "made up", (Hunk(RELEASE, FREES, "pass\n"),), ("unit_has_one_owner",))


def row(block_ids: list[int], *, tail: int = 0, timestamp: int = 0, output_length: int = 32) -> dict[str, Any]:
    """A row whose last block has `tail` tokens; 0 for a whole block."""
    input_length = BLOCK_LEN * len(block_ids) - (BLOCK_LEN - tail if tail else 0)
    return {"timestamp": timestamp, "input_length": input_length, "output_length": output_length, "hash_ids": block_ids}


def write_trace(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def chatty_rows(count: int, *, seed: int = 1) -> list[dict[str, Any]]:
    """Conversations with one system prompt: bursts of long prompts with new tails and long outputs."""
    chance, rows, history, fresh = Random(seed), [], [[0]], 1
    for index in range(count):
        blocks = chance.choice(history[-8:]) + list(range(fresh, fresh + chance.randint(1, 3)))
        fresh = blocks[-1] + 2
        history.append(blocks)
        tail, output_length = chance.randint(1, BLOCK_LEN), chance.randint(100, 2000)
        rows.append(row([*blocks, fresh - 1], tail=tail, timestamp=index // 8 * 3000, output_length=output_length))
    return rows
