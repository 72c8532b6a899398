"""What a program can show of a failure is named as the laws and contracts are."""

from swarden.harness.kit.symptoms import OF_LAWS
from swarden.invariants.catalog import collected


def test_symptoms_are_in_the_catalogue():
    names = {test.name for test in collected()}

    assert OF_LAWS.keys() - names == {"stuck"}  # the driver's own: a drain that does not end
