"""Text from outside in a form that can be printed: a terminal obeys control characters."""

from unicodedata import category

NOT_PRINTED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats such as a change of direction, surrogates, separators
NOT_XML = "\ufffe\uffff"  # the characters besides that XML 1.0 does not allow
LAYOUT = "\n"
ANSWER = "\n\t\u200c\u200d"  # what an answer may have besides: a tab, and the joiners of some scripts and emoji


def printable(text: str, *, keep: str = "") -> str:
    """The text with each character that a terminal could obey, or XML forbids, in escaped form, but for `keep`."""
    if text.isprintable():
        return text
    escaped = {char for char in {*text} - {*keep} if category(char) in NOT_PRINTED or char in NOT_XML}
    return "".join(repr(char)[1:-1] if char in escaped else char for char in text)
