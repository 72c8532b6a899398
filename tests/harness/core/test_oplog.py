"""Op-logs: a saved log can be loaded, and each error in a file is reported in one line."""

import hashlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.admission import load_log, parse_log
from swarden.harness.core.oplog import KINDS, Header, OpLog, OpLogError, OpLogText
from swarden.harness.core.ops import Abort, Flush, Recipe, Step, Submit
from swarden.harness.core.registry import OWN, target_of
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
    of_no_rank = any_ops(known).filter(lambda op: op.engine < len(header.configs) and not getattr(op, "rank", 0))
    ops = draw(st.lists(of_no_rank, max_size=8))
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


PAIR = HEADER.replace('"machine":"engine"', '"machine":"pd"')
BROKEN_HEADERS: dict[str, str | bytes] = {  # the beginning of the message: a file
    ": is empty; write a header first, as in {": "",
    ": is empty; write a header first": " \n\n",
    ":1: not a line of JSON: JSON is malformed: invalid character (byte 0); correct or remove": "engine\n",
    ":1: not a line of JSON: not UTF-8 at byte 2; correct or remove the line": b'{"\xff"}\n',
    ":1: the header is missing: the first line is an op; begin the first line with": '{"op":"step"}\n',
    ":1: the header has no format; begin the first line with": '{"seed":3}\n',
    ":1: format is 2, this build reads 3; use the build that wrote it": '{"format":2}\n',
    ":1: format is true, this build reads 3": '{"format":true}\n',
    f":1: the header: engine is missing; {CORRECT}": '{"format":3,"configs":[{}]}\n',
    ":1: the header: configs is missing": '{"format":3,"engine":"swarden"}\n',
    ":1: the header: engine 'toy' is not installed; install its package": HEADER.replace("swarden", "toy"),
    ':1: the header: machine is "tre", want engine, pd': HEADER.replace('"machine":"engine"', '"machine":"tre"'),
    ":1: the header: unknown fault x.y, swarden knows pool.refuses, ": HEADER.replace("]}", '],"faults":["x.y"]}'),
    ':1: the header: model is "x", machine engine runs tiny-': HEADER.replace("]}", '],"model":"x"}'),
    ':1: the header: model is "tiny-gemma3", machine pd runs none': PAIR.replace("]}", '],"model":"tiny-gemma3"}'),
    ":1: the header: the engines' roles are both, machine pd wants prefill, decode": PAIR,
    ":1: the header: the engines' roles are decode, machine engine wants": HEADER.replace("{}", '{"role":"decode"}'),
    ":1: the header: configs is [], want array of length >= 1": HEADER.replace("{}", ""),
    ":1: the header: configs[1] is 3, want object": HEADER.replace("{}", "{},3"),
    ":1: the header: unknown argument seeed": HEADER.replace("]}", '],"seeed":1}'),
    ":1: engine 1: page_size: 3 is not one of 1, 2, 4, 8, 16, 32": HEADER.replace("{}", '{},{"page_size":3}'),
    ':1: engine 0: new_token_ratio is "high", want float': HEADER.replace("{}", '{"new_token_ratio":"high"}'),
    f":1: the header: configs is {('[' + '{}, ' * 10)[:40]}…, want array of length <= 16": HEADER.replace(
        "{}", ",".join(["{}"] * 17)
    ),
    ":1: the engines: the pages of all pools, those on the host too": HEADER.replace(
        "{}", ",".join(['{"full_pages":300000}'] * 2)
    ),
    ":1: engine 0: pages: no such field; the fields are checksum_transfers, ": HEADER.replace("{}", '{"pages":3}'),
}


def test_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.oplog"
    with path.open("wb") as file:
        file.truncate((32 << 20) + 1)  # a hole, which takes no space

    with pytest.raises(OpLogError, match=r"large\.oplog: cannot be read: larger than 33554432 bytes; name an op-log$"):
        load_log(path)


def test_file_of_many_lines_is_refused_before_it_is_divided():
    assert complaint(b"{}\r\n" * ((1 << 18) + 1)).startswith("found.oplog: has more than 262144 lines; ")


NINES = "9" * 99
BROKEN_OPS = {  # the beginning of the message: a line
    f"3 is not an object; {WRITE}": "3",
    f"the line names no op; {WRITE}": '{"count":2}',
    f'unknown op "stepp", this build knows {", ".join(KINDS)}; {CORRECT}': '{"op":"stepp"}',
    "unknown op 3, this build knows ": '{"op":3}',
    f"step: unknown argument cuont; {CORRECT}": '{"op":"step","cuont":2}',
    "turn: unknown argument recipe.x": '{"op":"turn","recipe":{"x":2}}',
    "step: unknown argument a b": '{"op":"step","a\\nb":2}',
    "step: count is 0, want int >= 1": '{"op":"step","count":0}',
    "step: count is 9, want int <= 8": '{"op":"step","count":9}',
    "advance_clock: ms is -1, want int >= 0": '{"op":"advance_clock","ms":-1}',
    'abort: request is "1", want int': '{"op":"abort","request":"1"}',
    "abort: request is 1.5, want int": '{"op":"abort","request":1.5}',
    "abort: request is true, want int": '{"op":"abort","request":true}',
    "inject: machine engine has no rank 1 with these configurations": '{"op":"inject","rank":1}',
    "accept: lengths[1] is null, want int": '{"op":"accept","lengths":[1,null]}',
    "submit: recipe.path[1] is {}, want int": '{"op":"submit","recipe":{"path":[0,{}]}}',
    f'step: count is "{NINES[:39]}…, want int': f'{{"op":"step","count":"{NINES}"}}',
    f"abort: request is {NINES[:30]}, want int <= 2147483647": f'{{"op":"abort","request":{NINES[:30]}}}',
    'inject: fault is "some", want str matching regex \'^[a-z_]+': '{"op":"inject","fault":"some"}',
    "flush: engine is 1, the header's last is 0; name an engine of the header": '{"op":"flush","engine":1}',
    "a second header; put each log into a file of its own": HEADER,
    "not a line of JSON: nested too deeply; correct or remove the line": "[" * 100_000,
    f"step: count is {'[' * 40}…, want int": '{"op":"step","count":' + "[" * 900 + "]" * 900 + "}",
    "a line of 8388610 bytes, want at most 8388608; divide it": " " * (8 << 20) + "{}",
    "the prompts up to here have 1048577 tokens, want at most": '{"op":"submit","tokens":[' + "1," * (1 << 20) + "1]}",
}


@pytest.mark.parametrize(("message", "content"), BROKEN_HEADERS.items(), ids=[*BROKEN_HEADERS])
def test_error_names_the_part_of_the_header_that_is_invalid(message, content):
    assert complaint(content).startswith(f"found.oplog{message}")


@pytest.mark.parametrize(("message", "line"), BROKEN_OPS.items(), ids=[*BROKEN_OPS])
def test_error_names_the_line_of_an_invalid_op(message, line):
    assert complaint(f'{HEADER}\n{{"op":"step"}}\n\n{line}\n').startswith(f"found.oplog:4: {message}")


def test_error_names_the_ops_of_the_machine():
    header = '{"format":3,"engine":"swarden","machine":"pd","configs":[{"role":"prefill"},{"role":"decode"}]}'

    assert ":2: turn: machine pd has no such op, it knows submit, abort," in complaint(f'{header}\n{{"op":"turn"}}\n')


def test_error_names_the_modes_of_a_pause_that_the_machine_has():
    message = complaint(f'{HEADER}\n{{"op":"pause"}}\n{{"op":"pause","mode":"keep"}}\n')

    assert ":3: pause: machine engine has no mode keep, it knows retract;" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            FRESH_TEXT[: FRESH_TEXT.index('{"end"')],
            f"4: truncated: the log is sealed, and its end line is missing; {UNSEAL}",
        ),
        (FRESH_TEXT[:-9], f"5: torn: the file ends within the line; remove the line and, {UNSEAL}"),
        (
            FRESH_TEXT[: FRESH_TEXT.index("02b1")],
            f"3: torn: the file ends within the line; remove the line and, {UNSEAL}",
        ),
        (
            FRESH_TEXT.replace('"count":2', '"count":3'),
            '5: changed after it was sealed: the end line is {"end":3,"sha":"0ba29d0b212e1a81"}, '
            f'want {{"end":3,"sha":"1e808410fa0043d1"}}; {UNSEAL}',
        ),
        (
            FRESH_TEXT.replace('{"op":"abort"}\n', ""),
            '4: changed after it was sealed: the end line is {"end":3,"sha":"0ba29d0b212e1a81"}, '
            f'want {{"end":2,"sha":"d5ee86c51def230b"}}; {UNSEAL}',
        ),
        (FRESH_TEXT + '{"op":"step"}\n', "5: a line follows the end line; remove one of the two"),
        (
            sealed('{"op":"step"}', '{"op":"step","digest":"9f"}', '{"op":"step"}'),
            f"2: digest is null, and a later op has one; {UNSEAL}",
        ),
    ],
)
def test_change_of_a_sealed_log_is_detected(content, message):
    assert complaint(content).startswith(f"found.oplog:{message}")


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
