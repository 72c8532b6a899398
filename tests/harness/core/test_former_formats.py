"""Op-logs of earlier formats are read."""

from pathlib import Path

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Flush
from swarden.harness.core.registry import OWN, target_of

PATH = Path("it.oplog")


def test_setting_that_a_log_of_format_2_lacks_has_the_default_of_that_time(monkeypatch):
    monkeypatch.setattr(type(target_of(OWN)), "former_defaults", {"page_size": 2}, raising=False)
    line = '{"format":%d,"engine":"swarden","configs":[{"full_pages":40}]}\n'

    former, log = (OpLog.parse((line % number).encode(), PATH) for number in (2, 3))

    assert former.header.configs == [{"page_size": 2, "full_pages": 40}]
    assert log.header.configs == [{"full_pages": 40}]


def test_log_of_format_1_is_a_log_of_our_engine():
    text = '{"version":1,"machine":"engine","engines":[{"page_size":4}],"seed":3}\n{"op":"flush"}\n'

    log = OpLog.parse(text.encode(), PATH)

    assert log == OpLog(Header(engine=OWN, configs=[{"page_size": 4}], seed=3), [Flush()])
