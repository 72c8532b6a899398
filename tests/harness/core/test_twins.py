"""Twins: two engines that get the same ops, and the comparison of their outputs."""

from typing import Any

import pytest

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.oplog import Header, OpLog, OpLogError
from swarden.harness.core.ops import Abort, Accept, Drain, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.core.target import ENGINE, Pool, Shape
from swarden.harness.core.twins import ALL, Twin, check_twin, twin_for
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.invariants.events import Read, Written

OWN = target_of("swarden")
CONFIG: dict[str, Any] = {"page_size": 4, "full_pages": 12, "swa_pages": 8, "sliding_window": 6, "chunk_len": 8}
OPS = [Submit(tokens=(1, 2, 3, 4, 5), max_new_tokens=6), Submit(tokens=(1, 2, 3, 9), max_new_tokens=3), Step(), Drain()]


def failure_with(twin, ops=OPS, **config):
    """The failure of a run with a twin."""
    return run_log(OpLog(Header(engine="swarden", configs=[CONFIG | config], twin=twin), ops)).failure


def names():
    return list(OWN.twins(OWN.decode(CONFIG)))


FULL: dict[str, Any] = {"swa_pages": 0, "sliding_window": None, "lookahead_tokens": 2, "draft_tokens": 2}
WITH_TWINS = [
    *((name, CONFIG) for name in names() if name not in ("no-host", "no-drafts", "long-window")),
    *((name, CONFIG | FULL) for name in ("long-window", "no-drafts", "disaggregated")),
    ("no-host", CONFIG | {"host_full_pages": 12, "host_swa_pages": 8}),
]


@pytest.mark.parametrize(("name", "config"), WITH_TWINS)
def test_healthy_engine_agrees_with_each_of_its_twins(name, config):
    twin = twin_for(OWN, OWN.decode(config), name, 0)

    assert twin is not None
    assert failure_with(twin, **config) is None


def test_twin_of_the_own_engine_has_no_observer():
    [twin] = OWN.twin_systems(ENGINE, [OWN.decode(CONFIG)], "")
    for op in OPS[:3]:
        twin.do(op)

    assert {type(event) for event in twin.take_events()} <= {Read, Written}  # of the fake forward


class OtherToken(SwardenEngine):
    """An engine that adds one to the first token of each output."""

    def step(self):
        return [one._replace(token_ids=[one.token_ids[0] + 1, *one.token_ids[1:]]) for one in super().step()]


@pytest.fixture
def _another_second_engine(monkeypatch):
    """Each engine of a run but the first is OtherToken."""
    built = []

    def build(config, *_, **link):
        built.append(config)
        return (SwardenEngine, OtherToken)[len(built) > 1](config, **link)

    monkeypatch.setattr("swarden.harness.engines.own.target.SwardenEngine", build)


@pytest.mark.usefixtures("_another_second_engine")
@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(Twin(), id="another-setting"),
        pytest.param(Twin(settings={"role": "prefill"}, linked={"role": "decode"}), id="disaggregated"),
    ],
)
def test_other_output_of_the_twin_is_a_violation_of_the_first_engine(twin):
    failure = failure_with(twin)

    assert failure is not None
    assert failure.fingerprint == "twins_agree/request/other_token"
    assert failure.violations[0].values["position"] == 5


def test_aborted_request_is_compared_as_far_as_both_go():
    """The twin has computed fewer tokens at the abort, and a prompt that continues them differs."""
    ops = [OPS[0], Step(count=4), Abort(), Submit(max_new_tokens=2), Accept(lengths=(1,)), Drain()]

    assert failure_with(Twin(settings={"chunk_len": 4}), ops) is None


def test_twin_of_a_run_is_the_wanted_one_and_all_take_turns():
    config = OWN.decode(CONFIG)

    assert twin_for(OWN, config, "overlap", 3) == Twin(settings={"overlap": True})
    turns = [twin_for(OWN, config, ALL, ordinal) for ordinal in range(len(names()))]
    assert [one.settings for one in turns if one] == [
        dict(settings)
        for settings, *_ in OWN.twins(config).values()
        if OWN.decode(CONFIG | dict(settings)) != config  # no twin if nothing changes
    ]


def test_engine_without_twins_has_none(monkeypatch):
    monkeypatch.setattr(type(OWN), "twins", lambda *_: {})

    assert twin_for(OWN, OWN.decode(CONFIG), ALL, 0) is None


def test_engine_of_another_shape_is_no_twin():
    """The second engine must have the layers of the first, or their outputs cannot agree."""
    pools = (Pool("full", 8), Pool("swa", 8, window=4), Pool("swa", 8, window=16))

    with pytest.raises(InvalidConfig, match="want a full pool and at most one windowed pool"):
        OWN.config_of(Shape(pools=pools))


def test_run_without_a_valid_twin_has_none():
    """Drafts need lookahead: a change that makes the configuration invalid is left out."""
    drafting = OWN.decode(CONFIG | {"lookahead_tokens": 2, "draft_tokens": 2})

    assert twin_for(OWN, drafting, "no-drafts", 0) == Twin(settings={"draft_tokens": 0})
    assert twin_for(OWN, OWN.decode(CONFIG), "no-drafts", 0) is None


def test_unknown_twin_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"--twin: 'overlop' is no twin of swarden \(all, ample, .*\) and no engine"):
        check_twin(OWN, "overlop", "")


@pytest.mark.parametrize(
    ("twin", "message"),
    [
        (b'{"settings":{"page_size":3}}', "the twin: page_size: 3 is not one of"),
        (b'{"linked":{"page_size":4}}', "the twin: swarden links no engines with the roles both, both"),
        (b'{"engine":"no-such-engine"}', "the twin: .*no-such-engine"),
        (b'{"setting":{}}', "the header: "),
    ],
)
def test_log_with_a_bad_twin_is_refused_at_its_line(tmp_path, twin, message):
    path = tmp_path / "some.oplog"
    path.write_bytes(b'{"format":2,"engine":"swarden","configs":[{}],"twin":%s}\n{"op":"step"}\n' % twin)

    with pytest.raises(OpLogError, match=rf"some.oplog:1: {message}"):
        OpLog.load(path)


def test_log_with_a_twin_is_read_as_it_was_written(tmp_path):
    header = Header(engine="swarden", configs=[CONFIG], twin=Twin(settings={"overlap": True}))
    path = tmp_path / "some.oplog"
    OpLog(header, OPS).save(path)

    assert OpLog.load(path).header.twin == header.twin
