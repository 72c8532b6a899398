"""Op-logs: a saved log can be loaded, and each error in a file is reported in one line."""

import hashlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.admission import load_log, parse_log
from swarden.harness.core.errors import cut
from swarden.harness.core.oplog import KINDS, Header, OpLog, OpLogError, OpLogText
from swarden.harness.core.ops import Abort, Flush, Recipe, Step, Submit
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.faults import FAULTS
from swarden.harness.engines.own.models import MODELS
from tests.harness.some_ops import any_ops

PATH = Path("found.oplog")
HEADER = '{"format":3,"engine":"swarden","machine":"engine","configs":[{}]}'
CORRECT = "correct it, or use the build that wrote it"
WRITE = 'write an op as in {"op":"step","count":2}'
UNSEAL = 'to use the rest of the file, set "sealed" to false in line 1'
FRESH = OpLog(
    Header(engine=OWN, machine="engine", configs=[{"page_size": 4}], seed=7, run=3, source_hash="c0ffee", mutant="B14"),
    [Submit(recipe=Recipe(path=(0, 1)), max_new_tokens=3), Step(count=2), Abort()],
    ["9f3a", "02b1"],
)
FRESH_TEXT = """\
{"format":3,"engine":"swarden","configs":[{"page_size":4}],"seed":7,"run":3,"source_hash":"c0ffee",\
"mutant":"B14","sealed":true}
{"op":"submit","recipe":{"path":[0,1]},"max_new_tokens":3,"digest":"9f3a"}
{"op":"step","count":2,"digest":"02b1"}
{"op":"abort"}
{"end":3,"sha":"0ba29d0b212e1a81"}
"""

headers = st.builds(
    Header,
    engine=st.just(OWN),
    configs=st.lists(
        st.sampled_from(({}, {"page_size": 4}, EngineConfig(new_token_ratio=0.1).to_mapping())), min_size=1, max_size=3
    ),
    seed=st.integers(-(2**63), 2**63 - 1),
    run=st.integers(0, 2**31),
    mutant=st.none() | st.text(),
    expected=st.none() | st.text(),
)


@st.composite
def logs(draw):
    """Logs of valid ops, with digests after none, some or all of them."""
    header = draw(headers)
    known = target_of(header.engine).machines[header.machine].ops
    ops = draw(st.lists(any_ops(known).filter(lambda op: op.engine < len(header.configs)), max_size=8))
    num_digests = draw(st.none() | st.integers(0, len(ops)))
    return OpLog(header, ops, None if num_digests is None else [f"{index:02x}" for index in range(num_digests)])


def complaint(content: bytes | str) -> str:
    """The error for a file with this content."""
    with pytest.raises(OpLogError) as caught:
        parse_log(content if isinstance(content, bytes) else content.encode(), PATH)
    return str(caught.value)


def sealed(*lines: str) -> str:
    """A sealed file of these ops."""
    text = "".join(f"{line}\n" for line in (HEADER.replace("]}", '],"sealed":true}'), *lines))
    sha = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f'{text}{{"end":{len(lines)},"sha":"{sha}"}}\n'


@settings(derandomize=True, database=None, deadline=None)
@given(log=logs())
def test_saved_log_is_read_again(log):
    assert parse_log(log.to_bytes(), PATH) == log


def test_fresh_log_has_digests_and_an_end_line():
    assert FRESH.to_bytes().decode() == FRESH_TEXT


def test_regression_case_has_a_fingerprint_but_no_digests_and_no_end_line():
    log = FRESH.as_regression("unit_has_one_owner/swa page/free+tree")

    assert log.to_bytes().decode() == (
        '{"format":3,"engine":"swarden","configs":[{"page_size":4}],"seed":7,"run":3,"source_hash":"c0ffee",'
        '"mutant":"B14","expected":"unit_has_one_owner/swa page/free+tree"}\n'
        '{"op":"submit","recipe":{"path":[0,1]},"max_new_tokens":3}\n{"op":"step","count":2}\n{"op":"abort"}\n'
    )


def test_log_written_by_hand_is_read():
    """Blank lines, spaces, Windows line ends and a missing last line end are accepted."""
    header = '{"format": 3, "engine": "swarden", "machine": "engine", "configs": [{}]}'
    text = f'\n{header}\r\n\r\n{{"op": "step", "count": 2}}\n{{"op":"flush"}}'

    log = parse_log(text.encode(), PATH)

    assert log == OpLog(Header(engine=OWN, configs=[{}]), [Step(count=2), Flush()])


def test_format_is_read_without_the_engine_of_the_header():
    text = OpLogText(HEADER.replace("swarden", "toy").encode(), PATH)

    assert text.log(text.header({}), str) == OpLog(Header(engine="toy", configs=[{}]), [])


def test_edited_log_is_read_if_it_is_unsealed():
    """Its digests are those of other ops, so they are ignored."""
    edited = FRESH_TEXT.replace('"count":2', '"count":5').replace('"sealed":true', '"sealed":false')

    log = parse_log(edited.encode(), PATH)

    assert (log.ops[1], log.digests, log.header.sealed) == (Step(count=5), None, False)


BROKEN_HEADERS = [
    ("empty", "", ': is empty; write a header first, as in {"format":3,"engine":"swarden",…}'),
    ("blank", " \n\n", ': is empty; write a header first, as in {"format":3,"engine":"swarden",…}'),
    (
        "not JSON",
        "engine\n",
        ":1: not a line of JSON: JSON is malformed: invalid character (byte 0); correct or remove the line",
    ),
    ("not UTF-8", b'{"\xff"}\n', ":1: not a line of JSON: not UTF-8 at byte 2; correct or remove the line"),
    (
        "missing",
        '{"op":"step"}\n',
        ':1: the header is missing: the first line is an op; begin the first line with "format":3',
    ),
    ("no format", '{"seed":3}\n', ':1: the header has no format; begin the first line with "format":3'),
    ("earlier format", '{"format":2}\n', ":1: format is 2, this build reads 3; use the build that wrote it"),
    ("format true", '{"format":true}\n', ":1: format is true, this build reads 3; use the build that wrote it"),
    ("no engine", '{"format":3,"configs":[{}]}\n', f":1: the header: engine is missing; {CORRECT}"),
    ("no configurations", '{"format":3,"engine":"swarden"}\n', f":1: the header: configs is missing; {CORRECT}"),
    (
        "engine that is not installed",
        HEADER.replace("swarden", "toy"),
        ":1: the header: engine 'toy' is not installed; install its package; "
        "installed are demo, lmdeploy, server, sglang, swarden, transformers, vllm, vllm-cpu",
    ),
    (
        "unknown machine",
        HEADER.replace('"machine":"engine"', '"machine":"tre"'),
        f':1: the header: machine is "tre", want engine, pd; {CORRECT}',
    ),
    (
        "unknown fault",
        HEADER.replace("]}", '],"faults":["pool.explodes"]}'),
        f":1: the header: unknown fault pool.explodes, swarden knows {', '.join(FAULTS)}; {CORRECT}",
    ),
    (
        "unknown model",
        HEADER.replace("]}", '],"model":"huge-gemma3"}'),
        f':1: the header: model is "huge-gemma3", machine engine runs {", ".join(MODELS)}; {CORRECT}',
    ),
    (
        "a model for a machine that runs none",
        HEADER.replace('"machine":"engine"', '"machine":"pd"').replace("]}", '],"model":"tiny-gemma3"}'),
        f':1: the header: model is "tiny-gemma3", machine pd runs none; {CORRECT}',
    ),
    (
        "one engine of a pair",
        HEADER.replace('"machine":"engine"', '"machine":"pd"'),
        ":1: the header: the engines' roles are both, machine pd wants prefill, decode; correct the configurations",
    ),
    (
        "a decode engine alone",
        HEADER.replace("{}", '{"role":"decode"}'),
        ":1: the header: the engines' roles are decode, machine engine wants both; correct the configurations",
    ),
    ("no engines", HEADER.replace("{}", ""), f":1: the header: configs is [], want array of length >= 1; {CORRECT}"),
    ("wrong type", HEADER.replace("{}", "{},3"), f":1: the header: configs[1] is 3, want object; {CORRECT}"),
    ("unknown field", HEADER.replace("]}", '],"seeed":1}'), f":1: the header: unknown argument seeed; {CORRECT}"),
    (
        "bad configuration",
        HEADER.replace("{}", '{},{"page_size":3}'),
        ":1: engine 1: page_size: 3 is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256; correct the configuration",
    ),
    (
        "configuration of a wrong type",
        HEADER.replace("{}", '{"new_token_ratio":"high"}'),
        ':1: engine 0: new_token_ratio is "high", want float; correct the configuration',
    ),
    (
        "many engines",
        HEADER.replace("{}", ",".join(["{}"] * 17)),
        f":1: the header: configs is {('[' + '{}, ' * 10)[:40]}…, want array of length <= 16; {CORRECT}",
    ),
    (
        "engines that are large together",
        HEADER.replace("{}", ",".join(['{"full_pages":300000}'] * 2)),
        ":1: the engines: the pages of all pools, those on the host too, and max_running_requests: "
        "600032 in all; want at most 524288; correct the configurations",
    ),
    (
        "unknown setting",
        HEADER.replace("{}", '{"pages":3}'),
        f":1: engine 0: pages: no such field; the fields are {', '.join(sorted(EngineConfig().to_mapping()))}; "
        "correct the configuration",
    ),
]


def test_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.oplog"
    with path.open("wb") as file:
        file.truncate((32 << 20) + 1)  # a hole, which takes no space

    with pytest.raises(OpLogError, match=r"large\.oplog: cannot be read: larger than 33554432 bytes; name an op-log$"):
        load_log(path)


def test_file_of_many_lines_is_refused_before_it_is_divided():
    assert complaint(b"{}\r\n" * ((1 << 18) + 1)).startswith("found.oplog: has more than 262144 lines; ")


BROKEN_OPS = [
    ("not an object", "3", f"3 is not an object; {WRITE}"),
    ("no op", '{"count":2}', f"the line names no op; {WRITE}"),
    ("unknown op", '{"op":"stepp"}', f'unknown op "stepp", this build knows {", ".join(KINDS)}; {CORRECT}'),
    ("op of a wrong type", '{"op":3}', f"unknown op 3, this build knows {', '.join(KINDS)}; {CORRECT}"),
    ("unknown argument", '{"op":"step","cuont":2}', f"step: unknown argument cuont; {CORRECT}"),
    ("unknown argument within", '{"op":"turn","recipe":{"x":2}}', f"turn: unknown argument recipe.x; {CORRECT}"),
    ("argument with a line end", '{"op":"step","a\\nb":2}', f"step: unknown argument a b; {CORRECT}"),
    ("no step", '{"op":"step","count":0}', f"step: count is 0, want int >= 1; {CORRECT}"),
    ("many steps", '{"op":"step","count":9}', f"step: count is 9, want int <= 8; {CORRECT}"),
    ("negative", '{"op":"advance_clock","ms":-1}', f"advance_clock: ms is -1, want int >= 0; {CORRECT}"),
    ("text for a number", '{"op":"abort","request":"1"}', f'abort: request is "1", want int; {CORRECT}'),
    ("float for an int", '{"op":"abort","request":1.5}', f"abort: request is 1.5, want int; {CORRECT}"),
    ("flag for an int", '{"op":"abort","request":true}', f"abort: request is true, want int; {CORRECT}"),
    (
        "no such rank",
        '{"op":"inject","rank":1}',
        "inject: machine engine has no rank 1 with these configurations, the last rank of an engine is 0; " + CORRECT,
    ),
    ("element", '{"op":"accept","lengths":[1,null]}', f"accept: lengths[1] is null, want int; {CORRECT}"),
    (
        "element within",
        '{"op":"submit","recipe":{"path":[0,{}]}}',
        f"submit: recipe.path[1] is {{}}, want int; {CORRECT}",
    ),
    ("long value", '{"op":"step","count":"' + "9" * 99 + '"}', f'step: count is "{"9" * 39}…, want int; {CORRECT}'),
    (
        "beyond 64 bits",
        '{"op":"abort","request":' + "9" * 30 + "}",
        f"abort: request is {'9' * 30}, want int <= 2147483647; {CORRECT}",
    ),
    (
        "unknown word",
        '{"op":"inject","fault":"some"}',
        f"inject: fault is \"some\", want str matching regex '^[a-z_]+\\\\.[a-z_]+$'; {CORRECT}",
    ),
    (
        "engine that is not there",
        '{"op":"flush","engine":1}',
        "flush: engine is 1, the header's last is 0; name an engine of the header, or add one there",
    ),
    ("second header", HEADER, "a second header; put each log into a file of its own"),
    ("too deep", "[" * 100_000, "not a line of JSON: nested too deeply; correct or remove the line"),
    (
        "deep for a number",
        '{"op":"step","count":' + "[" * 900 + "]" * 900 + "}",
        f"step: count is {'[' * 40}…, want int; {CORRECT}",
    ),
    ("long line", " " * (8 << 20) + "{}", "a line of 8388610 bytes, want at most 8388608; divide it"),
    (
        "many tokens",
        '{"op":"submit","tokens":[' + "1," * (1 << 20) + "1]}",
        "the prompts up to here have 1048577 tokens, want at most 1048576; cut the log",
    ),
]


@pytest.mark.parametrize(
    ("content", "message"), [case[1:] for case in BROKEN_HEADERS], ids=[case[0] for case in BROKEN_HEADERS]
)
def test_error_names_the_part_of_the_header_that_is_invalid(content, message):
    assert complaint(content) == cut(f"found.oplog{message}")


@pytest.mark.parametrize(("line", "message"), [case[1:] for case in BROKEN_OPS], ids=[case[0] for case in BROKEN_OPS])
def test_error_names_the_line_of_an_invalid_op(line, message):
    assert complaint(f'{HEADER}\n{{"op":"step"}}\n\n{line}\n') == f"found.oplog:4: {message}"


def test_error_names_the_ops_of_the_machine():
    header = '{"format":3,"engine":"swarden","machine":"pd","configs":[{"role":"prefill"},{"role":"decode"}]}'

    assert ":2: turn: machine pd has no such op, it knows submit, abort," in complaint(f'{header}\n{{"op":"turn"}}\n')


def test_error_names_the_modes_of_a_pause_that_the_machine_has():
    message = complaint(f'{HEADER}\n{{"op":"pause"}}\n{{"op":"pause","mode":"keep"}}\n')

    assert ":3: pause: machine engine has no mode keep, it knows retract;" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            FRESH_TEXT[: FRESH_TEXT.index('{"end"')],
            f"4: truncated: the log is sealed, and its end line is missing; {UNSEAL}",
            id="truncated",
        ),
        pytest.param(
            FRESH_TEXT[:-9], f"5: torn: the file ends within the line; remove the line and, {UNSEAL}", id="torn"
        ),
        pytest.param(
            FRESH_TEXT[: FRESH_TEXT.index("02b1")],
            f"3: torn: the file ends within the line; remove the line and, {UNSEAL}",
            id="torn earlier",
        ),
        pytest.param(
            FRESH_TEXT.replace('"count":2', '"count":3'),
            '5: changed after it was sealed: the end line is {"end":3,"sha":"0ba29d0b212e1a81"}, '
            f'want {{"end":3,"sha":"1e808410fa0043d1"}}; {UNSEAL}',
            id="edited",
        ),
        pytest.param(
            FRESH_TEXT.replace('{"op":"abort"}\n', ""),
            '4: changed after it was sealed: the end line is {"end":3,"sha":"0ba29d0b212e1a81"}, '
            f'want {{"end":2,"sha":"d5ee86c51def230b"}}; {UNSEAL}',
            id="an op removed",
        ),
        pytest.param(
            FRESH_TEXT + '{"op":"step"}\n',
            "5: a line follows the end line; remove one of the two",
            id="an op added behind the end",
        ),
        pytest.param(
            sealed('{"op":"step"}', '{"op":"step","digest":"9f"}', '{"op":"step"}'),
            f"2: digest is null, and a later op has one; {UNSEAL}",
            id="a digest missing",
        ),
    ],
)
def test_change_of_a_sealed_log_is_detected(content, message):
    assert complaint(content) == f"found.oplog:{message}"


def test_error_names_a_missing_file(tmp_path):
    with pytest.raises(OpLogError) as caught:
        load_log(tmp_path / "none.oplog")

    assert str(caught.value) == f"{tmp_path}/none.oplog: cannot be read: No such file or directory; name an op-log"


def test_save_creates_the_folder_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "findings" / "found.oplog"

    FRESH.save(path)

    assert load_log(path) == FRESH
    assert list(path.parent.iterdir()) == [path]


def test_file_with_other_content_is_overwritten_only_if_requested(tmp_path):
    path = tmp_path / "found.oplog"
    FRESH.save(path)
    other = FRESH.as_regression("lost")

    with pytest.raises(OpLogError) as caught:
        other.save(path)

    assert str(caught.value) == f"{path}: exists and has other content; choose another name or remove it"
    assert load_log(path) == FRESH
    other.save(path, overwrite=True)
    assert load_log(path) == other


def test_file_with_equal_content_is_not_written_again(tmp_path):
    path = tmp_path / "found.oplog"
    FRESH.save(path)
    before = path.stat()

    FRESH.save(path)

    after = path.stat()  # not all of it: reading may change the time of the last access
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_error_names_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(OpLogError) as caught:
        FRESH.save(tmp_path / "file" / "found.oplog")

    assert str(caught.value) == (f"{tmp_path}/file/found.oplog: cannot be written: File exists; name another path")


def test_log_with_more_digests_than_ops_is_refused():
    with pytest.raises(AssertionError, match="2 digests for 1 ops"):
        OpLog(FRESH.header, [Step()], ["9f", "02"])


def test_pickled_error_keeps_its_text():
    error = OpLogError(PATH, 2, "torn", "remove the line")

    assert str(pickle.loads(pickle.dumps(error))) == "found.oplog:2: torn; remove the line"
