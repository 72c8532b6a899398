"""Mooncake's transfer engine, by which a prefill side copies memory: see connector.py."""

from collections.abc import Sequence
from typing import Any

from swarden.harness.engines.sglang.parts.connector import ADDRESS, MOONCAKE, ConnectorLink, Transfer, wait_until
from swarden.harness.kit.stand_ins import Silent


class MooncakeLink(ConnectorLink):
    """Two engines that Mooncake links: a transfer returns when it has ended."""

    backend = MOONCAKE

    def engine(self) -> Any:
        """The transfer engine of the side that has listened last."""
        session = f"{ADDRESS}:{len(self.boxes)}"
        return Silent(get_session_id=lambda: session, send_probe=lambda _: 0, batch_transfer_sync=self._send)

    def _send(self, _: str, *blocks: Sequence[int]) -> int:
        transfer = Transfer(list(zip(*blocks, strict=True)))
        self.transfer(transfer)
        wait_until(lambda: transfer.has_ended)
        return -transfer.has_failed
