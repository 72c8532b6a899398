"""The scripted proposer: ops set the number of its right draft tokens."""

from collections.abc import Callable, Sequence

from swarden.engine_under_test.ports import Wanted
from swarden.harness.kit.drafts import DraftScript


class ScriptedProposer:
    """Proposes drafts with a set number of right tokens, followed by a wrong token.

    The tokens after the wrong token are those that the model would sample after it.  `truth` gives the tokens of the
    model. The op-log sets the `script`; there are no drafts before that.
    """

    def __init__(self, truth: Callable[[Wanted], Sequence[int]], forget: Callable[[int], None]) -> None:
        self._truth = truth
        self.script = DraftScript()
        self.forget = forget

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        lengths = [(request, self.script.next()) for request in wanted]
        return [[] if length is None else self._draft(request, length) for request, length in lengths]

    def _draft(self, wanted: Wanted, length: int) -> list[int]:
        drafts = list(self._truth(wanted))
        if length < len(drafts):
            drafts[length] += 1
            rest = wanted._replace(tokens=[*wanted.tokens, *drafts[: length + 1]], most=wanted.most - length - 1)
            drafts[length + 1 :] = self._truth(rest)
        return drafts
