"""NIXL's agents, by which a prefill side writes to the memory of a decode side: see connector.py."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swarden.harness.engines.sglang.parts import link
from swarden.harness.engines.sglang.parts.connector import NIXL, ConnectorLink, Transfer, live
from swarden.harness.kit.stand_ins import Missing, Silent

AGENTS = "nixl._api"  # the module of its package that a release imports
FIELDS = 3  # of a block: address, length, device; newer agents also take a stride and a count


class NixlLink(ConnectorLink):
    """Two engines that NIXL links: a transfer goes on while the threads of the release do something else.

    Before 0.5.23 notifications tell the decode side of its end.
    """

    backend = NIXL

    def __init__(self, page_size: int) -> None:
        super().__init__(page_size)
        self._notes: list[tuple[int, bytes]] = []  # each with the step in which it arrives
        module: Any = Missing(nixl_agent=Agent, nixl_agent_config=Missing, nixl_thread_sync_t=Missing())
        sys.modules[AGENTS] = module

    def notify(self, transfer: Transfer) -> None:
        faults = self.prefill.faults
        if faults.fires(link.LINK_DROP):
            self.room(transfer.room).is_silent = True
            return
        due = self._steps + 2 * link.DELAY_POLLS * faults.fires(link.LINK_DELAY)
        self._last_due = max(self._last_due, due)
        self._notes.append((due, transfer.note))

    def arrived(self) -> list[bytes]:
        """The notifications that have arrived since the last call."""
        before, self._notes = self._notes, [note for note in self._notes if note[0] > self._steps]
        return [text for due, text in before if due <= self._steps]


class Agent(Silent):
    """NIXL's agent of one side."""

    def __init__(self, name: str, _: Any) -> None:
        super().__init__(name=name)

    def get_plugin_list(self) -> Sequence[str]:
        return ["UCX"]  # the backend by default

    def register_memory(self, *_: Any) -> bool:
        return True

    check_remote_metadata = register_memory

    def get_agent_metadata(self) -> bytes:
        return b""

    def get_xfer_descs(self, blocks: Any, _: str) -> Any:
        return blocks

    def prep_xfer_dlist(self, peer: str, blocks: Any, _: str) -> Any:
        if len(blocks[0]) != FIELDS:
            raise TypeError("a block has no stride")
        return blocks

    def make_prepped_xfer(self, _: str, *parts: Any) -> Transfer:
        blocks, chosen, others, its, *note = parts
        return transfer_of(blocks[chosen], others[its], *note)

    def initialize_xfer(self, _: str, blocks: Any, others: Any, peer: str, note: bytes = b"") -> Transfer:
        return transfer_of(blocks, others, note)

    def transfer(self, transfer: Transfer) -> str:
        live().transfer(transfer)
        return self.check_xfer_state(transfer)

    def check_xfer_state(self, transfer: Transfer) -> str:
        return "PROC" if not transfer.has_ended else "ERR" if transfer.has_failed else "DONE"

    def get_new_notifs(self) -> Mapping[str, list[bytes]]:
        return {"": live().arrived()}


def transfer_of(blocks: Iterable[Any], others: Iterable[Any], note: bytes = b"") -> Transfer:
    pairs = zip(blocks, others, strict=True)
    return Transfer([(int(source[0]), int(target[0]), int(source[1])) for source, target in pairs], note)
