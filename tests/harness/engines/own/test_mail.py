"""The messages of a transfer, as both sides of a pair send and read them."""

import pytest

from swarden.engine_under_test.messages import TransferEnd, TransferRequest
from swarden.harness.engines.own.mail import Mail
from swarden.invariants.events import LetGo

REQUEST, END = TransferRequest(7, ""), TransferEnd(7, ())


def deliver(mail, message):
    mail.count(message, 1)
    mail.count(message, -1)


def test_transfer_request_that_is_late_opens_the_transfer_until_its_next_end():
    mail = Mail()
    mail.count(REQUEST, 1)
    deliver(mail, END)
    before_the_request_is_read = mail.was_read(7)

    mail.count(REQUEST, -1)

    assert not before_the_request_is_read
    assert (mail.is_read(7), mail.was_read(7)) == (False, False)

    deliver(mail, END)

    assert (mail.is_read(7), mail.was_read(7)) == (True, True)


def test_transfer_that_was_read_stays_read_when_a_later_message_is_lost():
    mail = Mail()
    deliver(mail, END)

    mail.count(END, 1)

    assert (mail.is_read(7), mail.was_read(7)) == (False, True)


@pytest.mark.parametrize(("messages", "told"), [((REQUEST,), [7]), ((REQUEST, END), [])])
def test_transfer_that_is_given_up_is_told_once_unless_all_of_it_was_read(messages, told):
    mail = Mail()
    mail.notice(LetGo(7, "peer timeout"))
    mail.count(messages[0], 1)
    told_early = mail.take_given_up()
    mail.count(messages[0], -1)
    for message in messages[1:]:
        deliver(mail, message)

    assert (told_early, mail.take_given_up(), mail.take_given_up()) == ([], told, [])
