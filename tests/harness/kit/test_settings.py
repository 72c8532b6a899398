"""Declared settings: draws, errors, the JSON form and the groups of the shrinker follow from one declaration."""

from typing import Annotated, Any

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.kit.settings import (
    ConfiguredTarget,
    Drawn,
    Needs,
    OneOf,
    PartOf,
    PartSettings,
    Settings,
    drawn,
    replaced,
    within,
)
from tests.harness.engines.some_draws import RandomDraw


class Host(PartSettings, frozen=True):
    host_blocks: Annotated[int, within(0, 64)] = 0
    writes_back: Annotated[bool, PartOf("host_blocks")] = False
    evicts: Annotated[str, PartOf("host_blocks"), Drawn(("lru", "arc"))] = "lru"

    needs = (Needs("host_blocks", {"policy": ("fcfs",)}), Needs("writes_back", {"host_blocks": range(1, 4_000_000)}))

    def check(self, config):
        if self.host_blocks > config.num_blocks:
            raise InvalidConfig(f"host_blocks is {self.host_blocks}, want at most num_blocks {config.num_blocks}")


class SomeSettings(Settings, frozen=True):
    num_blocks: Annotated[int, within(1, 64), Drawn(range(4, 8))] = 16
    policy: Annotated[str, OneOf(("fcfs", "priority")), Drawn(("fcfs", "priority"))] = "fcfs"
    window: Annotated[int, within(1, 64)] | None = 4
    host: Host = Host()
    windows: tuple[Annotated[int, within(1, 64)], ...] = ()

    needs = (Needs("window", {"num_blocks": (8, 16)}, at=None),)


class SomeTarget(ConfiguredTarget):
    config_type = SomeSettings

    def build(self, config):
        raise NotImplementedError


KIND: Any = SomeTarget
TARGET = KIND()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"num_blocks": 0}, "num_blocks is 0, want int >= 1"),
        ({"num_blocks": 65}, "num_blocks is 65, want int <= 64"),
        ({"num_blocks": True}, "num_blocks is true, want int"),
        ({"policy": "lifo"}, 'policy is "lifo", want "fcfs" or "priority"'),
        ({"host_blocks": 9, "policy": "priority"}, 'policy is "priority" with host_blocks 9, want "fcfs"'),
        ({"window": None, "num_blocks": 9}, "num_blocks is 9 with window null, want 8 or 16"),
        ({"writes_back": True}, "host_blocks is 0 with writes_back true, want 1 to 3999999"),
        ({"host_blocks": 65}, "host_blocks is 65, want int <= 64"),
        ({"host_blocks": 9, "num_blocks": 8}, "host_blocks is 9, want at most num_blocks 8"),
        ({"pages": 1}, "unknown argument pages"),
        ({"host": {"host_blocks": 1}}, "unknown argument host"),
        ({"windows": (4, 0)}, r"windows\[1\] is 0, want int >= 1"),  # a tuple, as the shrinker makes it
    ],
)
def test_impossible_configuration_is_refused_by_one_line(settings, text):
    with pytest.raises(InvalidConfig, match=f"^{text}$"):
        TARGET.decode(settings)


def test_setting_that_another_one_needs_at_one_value_is_free_at_the_others():
    assert TARGET.decode({"window": 5, "num_blocks": 9}).num_blocks == 9


@pytest.mark.parametrize("seed", range(8))
def test_random_configuration_has_drawn_values_and_survives_an_op_log(seed):
    config = TARGET.config(RandomDraw(seed))

    assert config.num_blocks in range(4, 8)
    assert TARGET.decode(TARGET.encode(config)) == config


def test_only_named_settings_are_drawn():
    assert drawn(RandomDraw(0), SomeSettings, "policy", "evicts").keys() == {"policy", "evicts"}


def test_settings_of_a_part_are_set_drawn_and_written_beside_the_others():
    config = replaced(SomeSettings(), host_blocks=9, policy="fcfs")

    assert config.host == Host(host_blocks=9)
    assert [*TARGET.encode(config)] == [
        "num_blocks",
        "policy",
        "window",
        "host_blocks",
        "writes_back",
        "evicts",
        "windows",
    ]
    assert [*drawn(RandomDraw(0), SomeSettings)] == ["num_blocks", "policy", "evicts"]
    with pytest.raises(InvalidConfig, match=r"^host_blocks is 9, want at most num_blocks 8$"):
        replaced(config, num_blocks=8)


def test_shrinker_resets_a_setting_with_those_that_describe_it():
    assert TARGET.coupled == (["host_blocks", "writes_back", "evicts"],)
    assert TARGET.defaults["window"] == 4
