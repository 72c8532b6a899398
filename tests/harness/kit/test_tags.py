"""Tags in place of KV: a slot that holds the KV of another prefix, of other layers, or of no token shows."""

import pytest

from swarden.harness.kit.tags import VOCABULARY, ReadTags, TagMemory, chain, slots_of, token_after
from swarden.invariants.reference import Expectation, namespace_tag

TOKENS = [7, 3, 3, 9, 1, 4]


@pytest.mark.parametrize("window", [None, 1, 2, 4, 100], ids="window {}".format)
def test_token_is_that_of_the_reference_however_the_prompt_is_cut(window):
    """A chunk may start at any position: what it reads from there on determines each token after it."""
    expected = Expectation(5, 0, list(TOKENS))
    tags = chain(namespace_tag(5), TOKENS)

    for start in range(len(TOKENS)):
        first = ReadTags.first_of(window, start)
        for end in range(start + 1, len(TOKENS) + 1):
            read = ReadTags(window, first, tags[first:end])

            assert token_after([read], end) == expected.next_token(end, windows=(window,), vocabulary=VOCABULARY)


def test_chain_goes_on_where_another_ended():
    whole = chain(namespace_tag(0), TOKENS)

    assert whole[:2] + chain(whole[1], TOKENS[2:]) == whole


def test_tag_that_is_written_to_padding_is_lost():
    memory = TagMemory(2, unit_size=2)

    memory.write([1, 2], [11, 12])
    memory.put_unit(0, [13, 14])

    assert [*memory.read(range(4))] == [0, 0, 12, 0]


def test_components_that_share_a_pool_do_not_read_the_kv_of_each_other():
    memory = TagMemory(2)

    memory.write([1, 2], [11, 0], component=1)

    assert [*memory.read([1, 2], component=1)] == [11, 0]
    assert memory.read([1])[0] not in (0, 11)


def test_copied_unit_has_the_tags_of_its_source_for_the_same_component():
    memory = TagMemory(3, unit_size=2)
    memory.fill(1, 11, component=2)

    memory.put_unit(3, memory.unit(1))
    memory.put_unit(1, ())

    assert [*memory.read([2, 3, 6, 7], component=2)] == [0, 0, 11, 11]


def test_slots_follow_the_table_and_end_with_it():
    """Pages of two tokens in units of four slots: other layers of the pool have larger pages."""
    assert slots_of([5, 0, 2], 1, 7, page_size=2, unit_size=4) == [21, 0, 1, 8, 9, 0]
