"""Calls of a release's methods are followed."""

from swarden.harness.kit.calls import intercept


class Ledger:
    def take(self, count, *, owner):
        return [owner] * count


def test_followed_method_gets_its_arguments_and_its_result_is_that_of_the_wrapper():
    ledger, other, calls = Ledger(), Ledger(), []

    def follow(original, *args, **kwargs):
        calls.append((args, kwargs))
        return [*original(*args, **kwargs), "more"]

    intercept(ledger, "take", follow)

    assert ledger.take(2, owner="r1") == ["r1", "r1", "more"]
    assert calls == [((2,), {"owner": "r1"})]
    assert other.take(1, owner="r2") == ["r2"]
