"""swarden shrink, interrupted."""

from swarden.harness.commands import shrink as command
from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Drain
from swarden.harness.core.replay import failure_like
from swarden.harness.search.findings import sealed
from swarden.harness.search.shrink.shrink import measure
from tests.harness.commands.test_commands import OPLOGS


def test_interrupted_shrink_writes_its_smallest_log(tmp_path, monkeypatch, capsys):
    """The shrink is interrupted in a replay, after the first smaller candidate that fails as well."""
    minimal, failing, small = load_log(OPLOGS / "B18.oplog"), tmp_path / "failing.oplog", tmp_path / "small.oplog"
    sealed(OpLog(minimal.header, [Drain(), Drain(), *minimal.ops]))[0].save(failing)

    def replayed(candidate, fingerprint):
        failure = failure_like(candidate, fingerprint)
        if failure is not None and measure(candidate) < measure(load_log(failing)):
            monkeypatch.setattr(command, "failure_like", interrupted)
        return failure

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "failure_like", replayed)
    command.shrink(failing, out=small)

    assert measure(load_log(small)) < measure(load_log(failing))
    assert "when it was interrupted" in " ".join(capsys.readouterr().out.split())
