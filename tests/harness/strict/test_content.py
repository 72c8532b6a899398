"""The level content: healthy models pass, and each change behind the engine's back is reported, once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.model.runner import ModelForward
from swarden.engine_under_test.pair import create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE
from swarden.fakes.clock import FakeClock
from swarden.harness.core.errors import UsageError
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.engines.own.content.passes import sampled
from swarden.harness.engines.own.models import ON_CUDA, tiny_model
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.strict.checker import LOGS, SHARE, share_of
from swarden.invariants.events import SetAside
from tests.engine_under_test.builders import EventLog
from tests.engine_under_test.model.device import DEVICE
from tests.harness.strict.some_traffic import Watched, some_config

MODEL = "tiny-gemma3" + (ON_CUDA if DEVICE.type == "cuda" else "")
PROMPTS = [list(range(first, first + length)) for first, length in enumerate((37, 5, 30, 37, 16, 22))]
HOSTED = {"host_full_pages": 60, "host_swa_pages": 60, "load_back_threshold": 1}
CONFIGS = {
    "plain": some_config(),
    "overlapped": some_config(overlap=True, mixed_batches=True),
    "drafts": some_config(overlap=True, lookahead_tokens=3, draft_tokens=3, swa_pages=16),
    "write-through": some_config(**HOSTED),
    "write-back": some_config(**HOSTED, host_policy="write_back"),
}


@pytest.fixture(autouse=True)
def _record_content(monkeypatch):
    monkeypatch.setenv(VARIABLE, "content")


def model_ports(config):
    return Ports(ModelForward(tiny_model(MODEL, config).decoder), FakeClock())


@pytest.mark.parametrize("share", ["1", "0.1"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_healthy_model_has_no_violation(config, share, monkeypatch):
    monkeypatch.setenv(SHARE, share)
    engine = create_engine(config, ports=model_ports(config))

    generations = [*engine.generate(PROMPTS, SamplingParams(12)), *engine.generate(PROMPTS, SamplingParams(12))]

    assert {generation.finish_reason for generation in generations} == {"length"}
    assert not LOGS.exists()


@pytest.mark.parametrize("ahead", [{}, {"overlap": True, "lookahead_tokens": 2, "draft_tokens": 1}], ids=["", "drafts"])
def test_healthy_pair_with_a_model_has_no_violation(ahead):
    """Requests of the decode side are set aside, and filled from their copies, also after an accepted draft."""
    config, log = some_config(full_pages=22, swa_pages=24, reserved_decode_tokens=0, **ahead), EventLog()
    pair = create_pair(config, ports=(model_ports(config), replace(model_ports(config), observer=log)))

    generations = pair.generate([[5, 6, 7, 8] * 4, [5, 6, 7, 8] * 5, [1, 2] * 9], SamplingParams(24))

    assert {generation.finish_reason for generation in generations} == {"length"}
    assert log.of(SetAside)


def running(**settings):
    """One request with 12 committed tokens: pages 20, 19 and 18 of full, 10, 9 and 8 of swa."""
    watched = Watched("content", some_config(**settings))
    watched.submit(*range(12), max_new_tokens=9)
    watched.step()
    return watched


def change(watched, pool, *places):
    for page, offset in places:
        watched.engine.memory.store.kv(pool)[page, offset] += 1


def test_all_changed_slots_of_a_step_are_told():
    watched = running()
    change(watched, "full", (20, 1), (19, 0))
    change(watched, "swa", (8, 3))

    with pytest.raises(AccountingError) as raised:
        watched.step()

    lines = [line for line in str(raised.value).splitlines() if "other bytes" in line]
    assert lines == [
        "  full page 19: the slot at offset 0 has other bytes than were last written there",
        "  full page 20: the slot at offset 1 has other bytes than were last written there",
        "  swa page 8: the slot at offset 3 has other bytes than were last written there",
    ]


def test_changed_slot_is_reported_once():
    """The recorded checksum is that of the changed bytes from then on."""
    watched = Watched("content", some_config(), reports=True)
    watched.submit(*range(12), max_new_tokens=9)
    watched.step()
    change(watched, "full", (20, 1))

    watched.step(4)

    assert watched.checker.reporter.counts == {"slots_keep_their_bytes/full page/altered": 1}


def test_wrong_peer_is_told_before_its_consequences():
    watched = running()
    peers = watched.engine.memory.ledgers.peers["swa"]
    peers[19] = 3

    with pytest.raises(AccountingError) as raised:
        watched.step()

    assert str(raised.value).splitlines()[:2] == [
        "peers_change_only_by_pairing: The peer of a unit changes only when the two are paired, or their pairing ends.",
        "  full page 19: its peer is swa page 3, but it was last paired with swa page 9",
    ]


@pytest.mark.parametrize("value", ["0", "1.5", "-1", "nan", "a tenth", "5e-324", "1e-30"])
def test_value_that_is_no_share_is_misuse(value):
    with pytest.raises(UsageError, match=f"{SHARE}: '{value}' is no share; want a number from 0.000001 to 1"):
        share_of({SHARE: value})


@pytest.mark.parametrize("period", [1, 2, 7, 10])
def test_each_position_of_a_sliding_window_is_compared_once_in_a_period(period):
    """A position stays in the window for 20 passes of the request."""
    ends = np.arange(100, 200)

    compared = Counter(sampled(ends - 20, ends, ends, period).positions.tolist())

    assert all(compared[position] in (20 // period, 20 // period + 1) for position in range(100, 180))


def test_share_is_one_by_default():
    assert share_of({}) == share_of({SHARE: ""}) == 1


def test_pass_that_writes_a_page_of_the_tree_is_noticed():
    """A model reports no write: the level knows the pages of a pass from its launch."""
    with BY_ID["S76"].planted():
        config = some_config(overlap=True)
        engine = create_engine(config, ports=model_ports(config))

        with pytest.raises(AccountingError, match="writes_go_to_private_units"):
            engine.generate(PROMPTS, SamplingParams(30))


BACKUPS_IN_REVERSE = Mutant(
    id="X1",
    source="a backup assigns the host pages of a node in reverse order",
    hunks=(
        Hunk(
            "swarden.engine_under_test.host.backups:Backups.begin",
            before="zip(page_indices(ancestor, self._memory.page_size), on_device, strict=True)",
            after="zip(page_indices(ancestor, self._memory.page_size), on_device[::-1], strict=True)",
        ),
    ),
    caught_by=(),
)
LOADS_A_PAGE_TOO_LATE = Mutant(
    id="X2",
    source="a load reads the host page behind the one that it needs, and the first one last",
    hunks=(
        Hunk(
            "swarden.engine_under_test.host.tier:Loads.begin",
            before="zip(places, node.host.pages[component], strict=True)",
            after="zip(places, node.host.pages[component][1:] + node.host.pages[component][:1], strict=True)",
        ),
    ),
    caught_by=(),
)


def served_from_the_host(mutant):
    """Serve prompts with a model that fill the device, then the first of them again, which is loaded."""
    with mutant.planted():
        config = some_config(**HOSTED)
        engine = create_engine(config, ports=model_ports(config))
        for prompt in [PROMPTS[0], range(50, 90), range(100, 140), PROMPTS[0]]:
            engine.generate([[token % 97 for token in prompt]], SamplingParams(2))


@pytest.mark.parametrize("mutant", [BACKUPS_IN_REVERSE, LOADS_A_PAGE_TOO_LATE], ids=["backup", "load"])
def test_pages_that_are_mixed_up_with_a_model_are_found_by_content_alone(mutant, monkeypatch):
    """Each page has its owner, and each copy equals its source."""
    monkeypatch.setenv(VARIABLE, "census")
    served_from_the_host(mutant)
    monkeypatch.setenv(VARIABLE, "content")

    with pytest.raises(AccountingError, match=r"slots_hold_their_prefix: .*\n.* holds the KV of other tokens"):
        served_from_the_host(mutant)
