"""The option --launch: the settings of a server's launch line."""

from collections.abc import Sequence
from contextlib import suppress

from swarden.harness.commands.help import traffic_option
from swarden.harness.commands.servers import note
from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import OWN, UnknownEngine, installed, target_of
from swarden.harness.core.target import Launch
from swarden.harness.kit.launch import Line
from swarden.harness.search.fixed_settings import assignments

LAUNCH = traffic_option("--launch", help="the settings of a server, by the line that launches it", metavar="COMMAND")


def launched(text: str | None, engines: Sequence[str], url: str | None = None) -> tuple[list[str], Launch]:
    """The engine of a launch line, by default its newest release, and what the line sets, which is noted.

    Without a line the engines are as they were.
    """
    if text is None:
        return [*engines], Launch()
    if url is not None or len(engines) > 1:
        raise UsageError("--launch: is for one engine in this process; leave out --url and further ones of --engine")
    program, servers = Line(text).program, dict[str, Sequence[str]]()
    for name in installed().keys() - {OWN}:
        with suppress(UnknownEngine):
            servers[name] = target_of(name).servers
    names = sorted([name for name, programs in servers.items() if program in programs])
    if not names:
        known = ", ".join(sorted({one for programs in servers.values() for one in programs}))
        raise UsageError(f"--launch: {program!r} is no program of a server that is driven; want one of {known}")
    [engine] = engines or names[:1]
    if engine.partition("==")[0] not in names:
        raise UsageError(f"--launch: {program!r} is a server of {' or '.join(names)}, not of {engine}")
    target = target_of(engine)
    target.check_environment()
    found = target.launched(text)
    differing = {name: value for name, value in found.settings.items() if value != target.defaults[name]}
    note(f"--launch: {target.process}, machine {found.machine}: {', '.join(assignments(differing))}")
    note(f"not driven: {', '.join(found.not_driven) or 'nothing'}")
    return [engine], found
