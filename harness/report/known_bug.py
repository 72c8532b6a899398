"""The page of a known bug in Markdown, the same as an issue, and its row in the table of findings."""

import os
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import PRIVATE, Document, Fix, KnownBug, Related, Span
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Inject, Pause, Submit
from swarden.harness.core.releases import parsed
from swarden.harness.core.target import Target
from swarden.harness.report.story import CLAIMS
from swarden.harness.report.vulnerability import UNDER_EMBARGO
from swarden.harness.report.wording import counted

GITHUB = "https://github.com"
FOUND = "swarden, a fuzzer of KV memory, has found this bug. "
WRITTEN = "These runs of swarden, a fuzzer of KV memory, were written by hand: no search has found this bug.\n"
CASE = "# --- the case\n"  # in a program, above the function with the calls of the clients
MOST_CHANGED = 6  # lines of a fix that an issue shows
PYTHON = "Python 3.11, torch 2.13.0 (CPU)"
REPORTED = ("transformers", "numpy")
REPLACED = "; the model and GPU kernels are replaced"
WITH = "with [swarden](https://LINK), a fuzzer of KV memory; reported by hand."
RUNS = """
{origin}Each of these files is a short run of requests and of steps of the
scheduler, and `swarden replay FILE` repeats it:
"""


class BugView(NamedTuple):
    """A known bug for a page, with the addresses of what upstream has about it; a private bug has its name alone."""

    name: str
    effect: str = PRIVATE
    upstream: Sequence[str] = ()
    text: str = ""


class Row(NamedTuple):
    """A finding in the table of findings."""

    finding: str
    releases: str
    effect: str
    needs: str
    status: str


class Home(NamedTuple):
    """A repository on GitHub, the tag of the code ("": that of the release), and the folder of the package."""

    repository: str  # "" if the sources have no known address
    tag: str
    sources: str


def document(bug: KnownBug, target: Target, folder: Path) -> str:
    """The page of a bug; `folder` is the folder of the page, for the links to the op-logs."""
    about, home = bug.document, home_of(bug, target)
    facts = {
        "effect": bug.effect,
        "releases": span_text(bug, bug.tried),
        "needs": needs_text(bug, target),
        "upstream": upstream_text(bug, home),
        "status": status_text(bug),
    }
    of_swarden = {
        "Why it is the engine and not the test harness": about.argument if about is not None else "",
        "Notes": about.notes if about is not None else "",
        "Recorded runs": _runs_text(bug, folder),
    }
    rows = "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in facts.items() if text)])
    return _paragraphs(f"# {bug.title}", rows, *_texts(_sections(bug, about, home) | of_swarden)) + "\n"


def issue(bug: KnownBug, target: Target, program: str, main: str = "not checked") -> str:
    """A bug as an issue that a maintainer can judge in a minute; `main` says what is known of the newest code."""
    about, home = bug.document, home_of(bug, target)
    if about is None:
        raise UsageError(f"{bug.name}: has no document, so it is no issue; its verdict is {bug.verdict}")
    secret = f"**{UNDER_EMBARGO}**" if bug.verdict == PRIVATE else ""
    pools = pools_text(bug)
    below = f"{target.releases.on_index_as} " if bug.repository and target.releases else ""  # a bug of what it loads
    seen = f"In {below}{span_text(bug, bug.tried)}{pools and f'; also with {pools}'}."
    upstream = f"Related: {upstream_text(bug, home)}." if bug.upstream else ""
    sections = {
        f"In the source of {home.tag or about.code_release}": _code_text(about, home),
        "Calls" if CASE in program or about.proof else "Steps": _shown(about, program),
        "When": _paragraphs(_fenced(about.flags), _joined(about.sizes, f"Recovery: {about.recovery}")),
        "Fix": _fix_of_issue(bug, about, home),
        "Environment": _paragraphs(
            _environment(about, target, home, main), upstream, f"{'Shown' if about.by_hand else 'Found'} {WITH}"
        ),
    }
    client = about.client or f"{bug.effect[:1].upper()}{bug.effect[1:]}."
    return _paragraphs(secret, f"# {bug.title}", _joined(client, seen), _fenced(about.log), *_texts(sections)) + "\n"


def _shown(about: Document, program: str) -> str:
    """The calls that show a bug and their output, and the whole program behind them; the steps if there is none."""
    folded = f"<details><summary>The whole program</summary>\n\n{_fenced(program, 'python')}\n\n</details>"
    calls = about.proof or program.partition(CASE)[2].partition("\n\n\n")[0]
    steps = "" if calls else _numbered(about.steps)
    prints = about.prints and f"It prints:\n\n{_fenced(about.prints)}"
    return _paragraphs(steps, _fenced(calls, "python"), prints or about.no_program, program and folded)


def _fix_of_issue(bug: KnownBug, about: Document, home: Home) -> str:
    """The diff of the fix for the release whose lines are shown, if it is short; else the suggestion in words."""
    for fix in bug.fixes:
        if fix.releases[1] == about.code_release and fix.context and fix.num_changed <= MOST_CHANGED:
            return _fenced(diff_of(fix, home.sources), "diff")
    return about.suggestion


def _environment(about: Document, target: Target, home: Home, main: str) -> str:
    """The facts that the engine's template for issues asks for, as far as they are known."""
    releases, release = target.releases, about.code_release
    if releases is None:
        return f"{about.environment.strip()} Checked: {home.tag}; `master` {main}."
    packages = [f"{name} {releases.pins[name]}" for name in REPORTED if name in releases.pins]
    versions = ", ".join([f"{releases.on_index_as} {release} (wheel)", PYTHON, *packages])
    checked = f"Checked: {home.tag or f'v{release}'}; `main` {main}."
    return f"`{releases.report}` was not run: no GPU. {versions}{REPLACED if releases.stand_ins else ''}. {checked}"


def view_of(bug: KnownBug, target: Target) -> BugView:
    """A known bug for a page; `text` is its document as an issue, or its cause."""
    if bug.verdict == PRIVATE:
        return BugView(bug.name)
    if not bug.repository and target.releases is None:  # so that it has no address
        return BugView(bug.name, bug.effect, text=bug.cause)
    upstream = [_link(related, home_of(bug, target)) for related in bug.upstream]
    return BugView(bug.name, bug.effect, upstream, issue(bug, target, "") if bug.document is not None else bug.cause)


def _sections(bug: KnownBug, about: Document | None, home: Home) -> dict[str, str]:
    pools = pools_text(bug)
    same = pools and f"The same run fails with {pools}."
    newest_first = sorted(bug.fixes, key=lambda fix: parsed(fix.releases[1]), reverse=True)
    diffs = [_fix_text(fix, home.sources) for fix in newest_first if fix.lines]
    if about is None:
        return {"Cause": bug.cause, "Fix": _paragraphs(*diffs), "Sizes": same}
    return {
        "Environment": _paragraphs(about.environment, _fenced(about.flags)),
        "Steps": _numbered(about.steps),
        "Expected": about.expected,
        "Actual": _paragraphs(about.actual, _fenced(about.log), _fenced(about.proof, "python"), _fenced(about.prints)),
        "Cause": _paragraphs(bug.cause, f"In {about.code_release}:", _code_text(about, home)),
        "Fix": _paragraphs(about.suggestion, *diffs),
        "Sizes and likelihood": _paragraphs(about.sizes, same),
        "Recovery": about.recovery,
    }


def _code_text(about: Document, home: Home) -> str:
    """The places as permanent links, one a line: GitHub shows the lines behind such a link in an issue."""
    tree = f"{GITHUB}/{home.repository}/blob/{home.tag or f'v{about.code_release}'}/{home.sources}"
    places = [(place, f"{tree}{place.file}#L{place.line}" if home.repository else "") for place in about.code]
    return "\n".join(
        f"- {_linked(f'{place.file}:{place.line}', address)}{f': {place.says}' if place.says else f', `{place.name}`'}"
        for place, address in places
    )


def _linked(text: str, address: str) -> str:
    return f"[{text}]({address})" if address else text


def _texts(sections: dict[str, str]) -> list[str]:
    return [f"## {name}\n\n{text.strip()}" for name, text in sections.items() if text.strip()]


def rows_of(bugs: Iterable[KnownBug], target: Target) -> list[Row]:
    """A row for each bug that is not private: bugs of the newest release come first."""
    public = [bug for bug in bugs if bug.verdict != PRIVATE]
    return [
        Row(bug.name, specifier(bug), bug.effect, needs_text(bug, target), status_text(bug))
        for bug in sorted(public, key=lambda bug: (bug.fixed is not None, bug.name))
    ]


def specifier(bug: KnownBug) -> str:
    """The releases that have a bug, as a package is required, such as >=0.5.11,<0.5.22."""
    if bug.fixed is not None:
        return f">={bug.first},<{bug.fixed}"
    return f">={bug.first},<={bug.tried}" if bug.first != bug.tried else f"=={bug.tried}"


def status_text(bug: KnownBug) -> str:
    return bug.verdict if bug.fixed is None else "fixed"


def needs_text(bug: KnownBug, target: Target) -> str:
    """The features that the server and the traffic of the bug's own op-log need, beyond the default; "" if none."""
    if not bug.oplogs:
        return ""
    path = next(iter(bug.oplogs))
    return needs_of(parse_log(path.read_bytes(), path), target)


def needs_of(log: OpLog, target: Target) -> str:
    """The features that the server and the traffic of an op-log need, beyond the default; "" if none."""
    is_needed = {}
    for setting, need in target.needs.items():
        default = target.defaults.get(setting)
        is_needed[need] = any(_is_on(engine.get(setting, default), default) for engine in log.header.configs)
    is_needed["n > 1"] = any(isinstance(op, Submit) and op.sequences > 1 for op in log.ops)
    is_needed["a pause"] = any(isinstance(op, Pause) for op in log.ops)
    is_needed["a fault"] = any(isinstance(op, Inject) for op in log.ops)
    return ", ".join(need for need, needed in is_needed.items() if needed)


def _is_on(value: object, default: object) -> bool:
    if value in (None, []) or isinstance(value, str):
        return value not in (None, [], default)
    return bool(value) or value != default


def pools_text(bug: KnownBug) -> str:
    """The large pools with which a bug shows, too, as in "4,096 blocks"."""
    sizes = [f"{size:,} {name.removeprefix('num_').replace('_', ' ')}" for name, size in bug.large_pools.items()]
    return " and ".join(sizes)


def span_text(span: Span, tried: str) -> str:
    if span.fixed is not None:
        return f"from {span.first}, fixed in {span.fixed}"
    return f"{span.first} to {tried}, the newest tried" if span.first != tried else f"{tried}, the newest tried"


def upstream_text(bug: KnownBug, home: Home) -> str:
    links = [f"{_linked(str(item), _link(item, home))} ({item.state}): {item.relation}" for item in bug.upstream]
    return "; ".join(links) or f"no upstream issue found (searched up to {bug.searched})"


def home_of(bug: KnownBug, target: Target) -> Home:
    """Where the engine's sources are: as the bug states for a server, else as the target's releases state."""
    if bug.repository:
        repository, _, tag = bug.repository.partition("@")
        return Home(repository, tag, "")
    releases = target.releases
    return Home(releases.repository, "", releases.sources) if releases is not None else Home("", "", "")


def _link(related: Related, home: Home) -> str:
    """The address of an issue or a pull request; "" if its repository has none."""
    kind, repository = "issues" if related.kind == "issue" else "pull", related.repository or home.repository
    return f"{GITHUB}/{repository}/{kind}/{related.number}" if repository else ""


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _joined(*texts: str) -> str:
    return " ".join(text.strip() for text in texts if text.strip())


def _numbered(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def _fenced(text: str, language: str = "") -> str:
    return text and "\n".join((f"```{language}", text.strip("\n"), "```"))


def _runs_text(bug: KnownBug, folder: Path) -> str:
    logs = "\n".join(f"- {_log_text(bug, path, span, folder)}" for path, span in bug.oplogs.items())
    is_written = bug.document is not None and bug.document.by_hand
    runs = RUNS.format(origin=WRITTEN if is_written else FOUND)
    return logs and _paragraphs(runs, logs, f"In the first one {_failure_text(bug.fingerprints[0])}.")


def _failure_text(fingerprint: str) -> str:
    """The failure of a fingerprint, for a reader who knows no law of swarden by its name."""
    name, place, *_ = fingerprint.split("/")
    claim = CLAIMS.get(name)
    return f'this does not hold: "{claim.rstrip(".")}"' if claim is not None else f"`{place}` raises `{name}`"


def _log_text(bug: KnownBug, path: Path, span: Span, folder: Path) -> str:
    log = parse_log(path.read_bytes(), path)
    text = f"[{path.name}]({os.path.relpath(path.resolve(), folder)}), {counted(len(log.ops), 'operation')}"
    shows = bug.logs[path.stem].shows if path.stem in bug.logs else ""
    where = f"fails on {span_text(span, bug.tried)}" if span is not bug else ""
    return ": ".join(filter(None, (text, ", ".join(filter(None, (shows, where))))))


def diff_of(fix: Fix, sources: str) -> str:
    """A fix as a diff of the engine's repository, with the line numbers of the last release that the fix is for."""
    lines, last_file, growth = list[str](), "", 0
    contexts = fix.context or [("", "")] * len(fix.hunks)
    files = [f"{sources}{hunk.at.partition(':')[0].replace('.', '/')}.py" for hunk in fix.hunks]
    for file, line, hunk, context in sorted(zip(files, fix.lines, fix.hunks, contexts, strict=True)):
        if file != last_file:
            lines += [f"--- a/{file}", f"+++ b/{file}"]
            last_file, growth = file, 0
        function = hunk.at.partition(":")[2]
        depth = "    " * function.count(".")  # a hunk has the source of a function, without the indent of its class
        before, after = (indent(text, depth).splitlines() for text in (hunk.before, hunk.after))
        above, below = ([f" {line}" for line in text.splitlines()] for text in context)
        first, around = line - len(above), len(above) + len(below)
        lines.append(f"@@ -{first},{len(before) + around} +{first + growth},{len(after) + around} @@ {function}")
        lines += [*above, *islice(unified_diff(before, after, lineterm="", n=len(before)), 3, None), *below]
        growth += len(after) - len(before)
    return "\n".join(lines) + "\n"


def _fix_text(fix: Fix, sources: str) -> str:
    first, last = fix.releases
    span = f"patch of {first}" if first == last else f"patch of {first} to {last}, with the lines of {last}"
    return f"As a {span}, with which the failure does not occur:\n\n{_fenced(diff_of(fix, sources), 'diff')}"
