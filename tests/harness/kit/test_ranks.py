"""Ranks that run one at a time, and meet in their collectives: the result of each, and what stops them."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from swarden.harness.kit.lockstep import LockstepQueue, LockstepThread
from swarden.harness.kit.ranks import CollectiveFailed, Group, Ranks, replace_collectives

GROUP = Group("tp", 3)
LEAST = torch.distributed.ReduceOp.MIN


@pytest.fixture
def distributed():
    """The functions of torch.distributed, which serve a Group, too."""
    functions = SimpleNamespace(**{name: getattr(torch.distributed, name) for name in dir(torch.distributed)})
    replace_collectives(functions)
    return functions


def ended(outcome):
    try:
        return outcome.result()
    except CollectiveFailed as error:
        return str(error)


def run(act, *, size=3, held=()):
    """What `act` returns in each rank, or the text of its error."""
    ranks = Ranks(size, held)
    return [ended(outcome) for outcome in ranks.run([partial(act, rank) for rank in range(size)])]


def test_all_ranks_get_the_reduced_value(distributed):
    def act(rank):
        values = torch.tensor([rank + 5, 9 - rank])
        distributed.all_reduce(values, op=LEAST, group=GROUP)
        gathered = [None] * 3
        distributed.all_gather_object(gathered, rank, group=GROUP)
        objects = [f"of {rank}"]
        distributed.broadcast_object_list(objects, src=1, group=GROUP)
        distributed.barrier(group=GROUP)
        return values.tolist(), gathered, objects, distributed.get_rank(group=GROUP)

    assert run(act) == [([5, 7], [0, 1, 2], ["of 1"], rank) for rank in range(3)]


def test_rank_that_waits_for_ever_says_where(distributed):
    def act(rank):
        if rank != 1:
            distributed.all_reduce(torch.tensor(rank), op=LEAST, group=GROUP)
        return rank

    first, second, third = run(act)

    assert second == 1
    assert first.startswith("rank 0 waits for ever: rank 0 is in all_reduce min of torch.int64 [] at tests.")
    assert third.startswith("rank 2 waits for ever: ")


def test_other_collectives_of_one_group_are_told_apart(distributed):
    def act(rank):
        distributed.all_reduce(torch.zeros(1 + (rank == 2)), op=LEAST, group=GROUP)

    assert all(text.startswith("the ranks of tp differ: rank 0 is in all_reduce min of") for text in run(act))


@pytest.mark.parametrize(
    ("third", "message"),
    [
        (["insert", "match"], None),
        (["match", "insert"], "the ranks of consensus differ: rank 0 is in the decision of insert at "),
        (["insert"], "rank 0 is in the decision of match at "),
    ],
    ids=["same", "other order", "fewer"],
)
def test_ranks_say_the_same_in_one_order(third, message):
    def act(rank):
        for what in third if rank == 2 else ["insert", "match"]:
            assert Ranks.current is not None
            Ranks.current.agree(what)

    assert (run(act)[2] or "").startswith(message or "")
    assert (run(act)[2] is None) == (message is None)


def test_error_of_one_rank_is_not_hidden_by_those_that_wait_for_it(distributed):
    def act(rank):
        if rank == 2:
            raise KeyError("of rank 2")
        distributed.barrier(group=GROUP)

    for outcome in Ranks(3, ()).run([partial(act, rank) for rank in range(3)]):
        with pytest.raises(KeyError, match="of rank 2"):
            outcome.result()


def test_each_rank_has_its_own_globals(distributed):
    counter = SimpleNamespace(count=7)

    def act(rank):
        counter.count += rank
        distributed.barrier(group=GROUP)
        counter.count += 10
        return counter.count

    assert run(act, held=[(counter, "count")]) == [17, 18, 19]
    assert counter.count == 7


def test_each_rank_is_traced_by_its_own_function(distributed):
    def act(_):
        mine = SimpleNamespace(called=lambda *_: None).called
        sys.settrace(mine)
        distributed.barrier(group=GROUP)
        own = sys.gettrace() is mine
        sys.settrace(None)
        return own

    assert run(act) == [True] * 3


def test_thread_of_a_rank_waits_for_those_of_the_others(distributed):
    """The rank goes on meanwhile; its thread is held until the others have entered the collective."""
    reduced, held = dict[int, int](), list[bool]()

    def work(rank, queue):
        value = torch.tensor(queue.get())
        distributed.all_reduce(value, op=LEAST, group=GROUP)
        reduced[rank] = int(value)

    def act(rank):
        queue = LockstepQueue()
        thread = LockstepThread(partial(work, rank, queue))
        thread.start()
        queue.put(rank + 4)
        thread.step()
        held.append(thread.held_by is not None)
        distributed.barrier(group=Group("main", 3))
        thread.step()

    run(act)
    LockstepThread.end_all()

    assert held == [True, True, False]
    assert reduced == {0: 4, 1: 4, 2: 4}


def test_rank_that_waits_for_one_that_has_left_gets_an_error():
    ranks, errors = Ranks(3, ()), []

    def wait():
        try:
            ranks.meet(GROUP.name, "barrier", "", None)
        except CollectiveFailed as error:
            errors.append(str(error))

    thread = LockstepThread(wait)
    thread.start()
    ranks.leave(GROUP, [1, 2])
    thread.step()

    assert "rank 0 is in barrier" in errors[0]
    assert "rank 2 is in no collective" in errors[0]
