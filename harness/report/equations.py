"""The equation of a pool as text: each term of its conservation, and the difference of their sum and its capacity."""

from swarden.invariants.conservation import Conservation, conservation_of
from swarden.invariants.view import PoolView


def conservation_line(pool: PoolView) -> str:
    """The name of a pool and its equation."""
    return f"{pool.name}: {equation_text(conservation_of(pool))}"


def equation_text(terms: Conservation) -> str:
    uncached = sum(terms.uncached.values())
    holders = ", ".join(f"{owner} {count}" for owner, count in terms.uncached.items())
    return (
        f"capacity {terms.capacity} = free {terms.free}"
        f" + cached {terms.evictable + terms.protected} (evictable {terms.evictable}, protected {terms.protected})"
        f" + uncached {uncached}{f' ({holders})' if holders else ''}"
        f"{f' + fenced {terms.fenced}' if terms.fenced else ''}{_excess_text(terms.excess)}"
    )


def _excess_text(excess: int) -> str:
    if not excess:
        return ""
    count = "one" if abs(excess) == 1 else str(abs(excess))
    return f": {count} too {'many' if excess > 0 else 'few'}"
