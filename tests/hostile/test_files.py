"""A hostile file is read, or refused with one line; it takes little memory and time and raises nothing else.

SWARDEN_HOSTILE_SHARE multiplies the number of cases: with 12 there are more than 10,000.
"""

import json
import shutil
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import FIXED_LEN, LENGTHS, FrameDamaged, FrameReader, Seal, encode
from swarden.engine_under_test.errors import CheckpointError, ConfigError
from swarden.engine_under_test.messages import PageData, TransferEnd, TransferRequest
from swarden.engine_under_test.model.checkpoint import load_decoder
from swarden.engine_under_test.model.tiny import TINY, tiny_config
from swarden.engine_under_test.model.tokenizer import Tokenizer
from swarden.harness.commands.project import PROJECT, with_project
from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import known_bugs_in
from swarden.harness.core.ops import ENGINE_OPS
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import run_log
from swarden.harness.releases.backtest import Backtest
from swarden.harness.releases.backtest_results import Budget, Frozen, Outcome, Pair
from swarden.harness.traces.mooncake import read_mooncake
from swarden.harness.traces.serve import Pace, longest, serve
from tests.engine_under_test.model.checkpoints import CPU, write_checkpoint
from tests.engine_under_test.model.dense import dense_logits
from tests.engine_under_test.model.tokenizers import write_tokenizer
from tests.harness.core.test_known_bug import DOCUMENT, FIX, LEAST
from tests.harness.some_ops import any_ops
from tests.harness.traces.some_traces import chatty_rows
from tests.hostile.bounded import bounded, cases
from tests.hostile.mutations import damaged, files_of, mutated, text_of, toml_of

CONFIGS = (
    EngineConfig(page_size=4, full_pages=20, swa_pages=10, sliding_window=6, chunk_len=16, max_context_len=128),
    EngineConfig(page_size=1, full_pages=70, overlap=True, lookahead_tokens=2, draft_tokens=2),
    EngineConfig(full_pages=40, swa_pages=9, sliding_window=8, host_full_pages=80, host_swa_pages=20),
)
BUG = tomllib.loads(LEAST + DOCUMENT + FIX) | {"logs": {"some-bug--again": {"shows": "x"}}, "large_pools": {"a": 1}}
SETTINGS = {"engine": ["demo"], "minutes": 2, "archive": "nights", "set": {"page_size": 4, "name": "a b"}}
FROZEN = Frozen(fingerprint="x/y", log="x.oplog", blake2b="00", ops=3, outcome=Outcome.FOUND)
PAIR = Pair(old="1.0.0", new="1.0.1", judged=[FROZEN])
ROWS = [row | {"output_length": 64} for row in chatty_rows(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made: Path = tmp_path_factory.mktemp("hostile")
    return made


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A small checkpoint of each family, with an index."""
    found = {}
    for family in TINY:
        directory = found[family] = tmp_path_factory.mktemp(family)
        names = write_checkpoint(directory, family).state_dict()
        index = {"weight_map": {name: "model.safetensors" for name in names if name != "lm_head.weight"}}
        (directory / "model.safetensors.index.json").write_bytes(text_of(index))
    return found


# --- op-logs


@st.composite
def oplogs(draw: DrawFn) -> bytes:
    """A log of a few ops on a small engine; the configuration, another part of the header or one op is hostile."""
    header: Any = {"format": 3, "engine": OWN, "machine": draw(st.sampled_from(("engine", "pd", "ledger")))}
    config = draw(st.sampled_from(CONFIGS)).to_mapping()
    is_config = draw(st.booleans())
    header["configs"] = [draw(mutated(config)) if is_config else config]
    ops = draw(st.lists(any_ops(ENGINE_OPS), max_size=6))
    lines = [header, *map(as_document, ops), {"op": "submit"}, {"op": "drain"}]
    if not is_config:
        changed = draw(st.integers(0, len(lines) - 1))
        lines[changed] = draw(mutated(lines[changed]))
    return draw(damaged(b"".join(text_of(line) + b"\n" for line in lines)))


def as_document(op: Any) -> Any:
    return json.loads(msgspec.json.encode(op))


@cases(150)
@given(content=oplogs())
def test_hostile_op_log_is_run_or_refused(content):
    with bounded(UsageError):
        failure = run_log(parse_log(content, Path("hostile.oplog"))).failure
        assert failure is None or failure.error is None, failure


# --- traces


@cases(150)
@given(content=st.sampled_from(range(len(ROWS))).flatmap(lambda n: traces(n)), scale=st.sampled_from((1, 32, 512)))
def test_hostile_trace_is_served_or_refused(folder, content, scale):
    path = folder / "trace.jsonl"
    path.write_bytes(content)
    with bounded(UsageError, ConfigError):
        requests = read_mooncake(path, limit=None, scale=scale)
        config = EngineConfig(full_pages=256, max_context_len=longest(requests), max_running_requests=8)
        serve(requests, config, Pace(step_ms=1000, check_every=0))


def traces(changed: int) -> st.SearchStrategy[bytes]:
    """A trace of which one row is hostile."""
    before, after = (b"".join(text_of(row) + b"\n" for row in rows) for rows in (ROWS[:changed], ROWS[changed + 1 :]))
    return files_of(mutated(ROWS[changed])).map(lambda row: before + row + b"\n" + after)


# --- the user's settings, and the results that a command finds


def judged_in(path: Path) -> Any:
    return Backtest("demo", path.parent, Budget(seed=0, cpu_seconds=None, max_runs=1, adapter="")).pair(
        "1.0.0", "1.0.1"
    )


@pytest.mark.parametrize(
    ("name", "files", "read"),
    [
        (PROJECT.name, files_of(mutated({"tool": {"swarden": SETTINGS}}), toml_of), lambda _: with_project(["fuzz"])),
        ("bugs/some-bug.toml", files_of(mutated(BUG), toml_of), lambda path: known_bugs_in.__wrapped__(path.parent)),
        ("demo/1.0.0--1.0.1.json", files_of(mutated(as_document(PAIR))), judged_in),
    ],
    ids=("project", "known-bug", "backtest"),
)
@cases(60)
@given(data=st.data())
def test_hostile_file_of_a_folder_is_read_or_refused(folder, name, files, read, data):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(data.draw(files))
    with bounded(UsageError), chdir(folder):
        read(folder / name)


# --- checkpoints


def loaded(directory: Path) -> None:
    """Load the checkpoint and compute some logits, or refuse it."""
    with bounded(CheckpointError), torch.inference_mode():
        decoder = load_decoder(directory, dtype=torch.float32, device=CPU)
        dense_logits(decoder, torch.arange(3, 9) % decoder.spec.vocab_size)


@st.composite
def configs(draw: DrawFn) -> tuple[str, bytes]:
    """A family, and a config.json for its checkpoint."""
    family = draw(st.sampled_from(sorted(TINY)))
    return family, draw(files_of(mutated(tiny_config(family))))


@cases(200)
@given(config=configs())
def test_hostile_config_is_used_or_refused(checkpoints, folder, config):
    family, content = config
    with_file(checkpoints[family], folder, "config.json", content)

    loaded(folder / "checkpoint")


@cases(60)
@given(data=st.data(), name=st.sampled_from(("model.safetensors.index.json", "generation_config.json")))
def test_hostile_index_is_used_or_refused(checkpoints, folder, data, name):
    content = (checkpoints["gemma3"] / name).read_text()
    with_file(checkpoints["gemma3"], folder, name, data.draw(files_of(mutated(json.loads(content)))))

    loaded(folder / "checkpoint")


@cases(80)
@given(data=st.data())
def test_hostile_file_of_tensors_is_used_or_refused(checkpoints, folder, data):
    """The header is hostile, or any part of the file is damaged."""
    content = (checkpoints["llama"] / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = text_of(data.draw(mutated(json.loads(content[8:end]))))
    changed = len(header).to_bytes(8, "little") + header + content[end:]
    with_file(checkpoints["llama"], folder, "model.safetensors", data.draw(damaged(changed)))

    loaded(folder / "checkpoint")


def with_file(source: Path, folder: Path, name: str, content: bytes) -> None:
    """Make a copy of a checkpoint in which one file has other content."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    shutil.copytree(source, folder / "checkpoint")
    (folder / "checkpoint" / name).write_bytes(content)


# --- tokenizers

STRIP = {"type": "Strip", "content": "a", "start": 3, "stop": 1}
PREPEND = {"type": "Prepend", "prepend": "x"}
SUBWORDS = {"unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}
PLACES = {
    "normalizer": (
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"},
        {"type": "Sequence", "normalizers": [{"type": "NFKC"}, PREPEND]},
    ),
    "decoder": (STRIP, {"type": "WordPiece", "prefix": "", "cleanup": True}),
    "pre_tokenizer": ({"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},),
    "model": (
        {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"},
        {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None},
        {"type": "WordPiece", "vocab": {"a": 0}, **SUBWORDS},
    ),
}


@cases(40)
@given(data=st.data(), part=st.sampled_from(sorted(PLACES)), text=st.sampled_from(("", "a" * 50, "é漢 \x1b", "<eos>")))
def test_hostile_tokenizer_is_used_or_refused(folder, data, part, text):
    write_tokenizer(folder)
    path = folder / "tokenizer.json"
    bad = st.sampled_from(PLACES[part])
    values = json.loads(path.read_text()) | {part: data.draw(bad | bad.flatmap(mutated))}
    path.write_bytes(data.draw(st.just(text_of(values)) | files_of(mutated(values))))
    with bounded(CheckpointError):
        tokenizer = Tokenizer(folder)
        tokenizer.decode([*tokenizer.encode(text), 0, 1, 2**31])


# --- the link

PAGES = PageData(4, "swa", 7, 2, torch.arange(8).view(2, 4))
KEY = bytes(32)
MESSAGES = (TransferRequest(1, "terms"), TransferEnd(5, (12,)), PAGES)
FRAMES = [b"".join(encode(message, Seal(KEY))) for message in MESSAGES]


@cases(200)
@given(data=st.data(), frame=st.sampled_from(FRAMES))
def test_hostile_frame_is_a_message_or_damaged(data, frame):
    """The seal of the frame is right: its sender may be a peer that has the secret and is broken."""
    length, _ = LENGTHS.unpack_from(frame)
    header, payload = frame[FIXED_LEN:][:length], frame[FIXED_LEN:][length:]
    changed = data.draw(files_of(mutated(json.loads(header))))
    fixed = LENGTHS.pack(len(changed), len(payload)) + Seal(KEY).next(changed, payload)
    with bounded(FrameDamaged):
        FrameReader(KEY, max_payload=1 << 20).feed(data.draw(damaged(fixed)) + changed + payload)


def test_error_of_a_shape_beyond_64_bits_is_one_line():
    """torch adds its own stack to the message."""
    header = text_of({"kind": "PageData", "pages": {"dtype": "int64", "shape": [2, 10**30]}})
    frame = LENGTHS.pack(len(header), 0) + Seal(KEY).next(header, b"") + header

    with pytest.raises(FrameDamaged, match=r"^a frame is authentic, but its message is invalid: .+$"):
        FrameReader(KEY, max_payload=0).feed(frame)
