"""swarden repro: a known bug or an op-log as a program that needs only the engine's package, or as an issue."""

from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import ERR, OUT
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.releases import CHECKOUT
from swarden.harness.releases.commits import git, links
from swarden.harness.search.programs import Form, Found, Ran, engines_to_run, find, run_program, shown, written_of


def repro(
    finding: Annotated[str, typer.Argument(help="the name of a known bug, or an op-log file")],
    *,
    form: Annotated[Form, typer.Option("--as", help="the form of the program, or an issue in Markdown")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="a new file; standard output by default")] = None,
    engine: Annotated[
        str | None, typer.Option(help="NAME==VERSION on which it fails; the newest that is installed by default")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="run the program in a process of its own")] = False,
    on: Annotated[str | None, typer.Option(help="run it on NAME==VERSION, another release")] = None,
    upstream: Annotated[
        Path | None, typer.Option(metavar="DIR", help="run the program in a checkout of the engine")
    ] = None,
    server: servers.OfLogs = servers.NONE,
) -> None:
    """Write a finding as a program that needs only the engine's package, or as the Markdown of an issue.

    A program exits with 1 if it shows the bug and with 0 if it does not; so do --run and --upstream.
    """
    server.publish()
    if out is not None and (out.exists() or out.is_symlink()):
        raise UsageError(f"--out: {out} exists; name a new file")
    if (run or on is not None) and form is not Form.SCRIPT:
        raise UsageError(f"--run, --on: {form} does not run here; write it --as script")
    failing = find(finding, engine, needs_release=form is not Form.ISSUE)
    if failing.bug is None:
        shown(failing)
    upstream_ran = run_upstream(failing, upstream) if upstream is not None else None
    text = written_of(failing, form, upstream_ran.how if upstream_ran is not None else "not checked")
    if out is None:
        OUT.print(text, end="", soft_wrap=True)
    else:
        with out.open("x") as stream:
            stream.write(text)
    if upstream_ran is not None:
        ERR.print(f"{upstream_ran.how}: {upstream_ran.line}", soft_wrap=True)
        raise typer.Exit(code_of(upstream_ran))
    if run or on is not None:
        ran = run_program(text, on or ([failing.engine] if failing.bug is None else engines_to_run(failing))[0])
        ERR.print(f"{ran.how}: exit code {ran.code}, {ran.line or 'no output'}", soft_wrap=True)
        raise typer.Exit(code_of(ran))


def run_upstream(failing: Found, checkout: Path) -> Ran:
    """Run the script of a finding in a checkout of its engine; the text says the commit, and how it ended."""
    program, releases = written_of(failing, Form.SCRIPT), failing.target.releases
    if releases is None:
        raise UsageError(f"--upstream: {failing.engine} is no release of a package; name a finding of one")
    version = f"{CHECKOUT}-upstream"
    with links() as folder:
        releases.link(version, checkout, folder, option="--upstream")
        ran = run_program(program, f"{failing.target.name}=={version}")
    ends = "fails" if ran.shows_bug else "passes" if ran.code == 0 else "cannot run it"
    return ran._replace(how=f"at {git(checkout, 'rev-parse', '--short=12', 'HEAD')} {ends}")


def code_of(ran: Ran) -> ExitCode:
    """The exit code for a program that was run; raises UsageError if it did not come to its end."""
    if ran.shows_bug:
        return ExitCode.VIOLATED
    if ran.code == 0:
        return ExitCode.CLEAN
    raise UsageError(f"not run: {ran.line or 'no output'}; name a release with --on that the program is for")
