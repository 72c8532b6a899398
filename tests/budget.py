"""The budget of lines of each folder: it goes down freely, and up only with a line that names the new capability."""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.tidy import Module

# Lines of code by folder, without blank lines and docstrings.  A module counts for the innermost folder that is listed.
LINES: Mapping[str, int] = {
    "engine_under_test": 1_800,
    "engine_under_test/cache": 880,
    "engine_under_test/disaggregation": 1_160,
    "engine_under_test/host": 420,
    "engine_under_test/model": 2_340,
    "engine_under_test/pools": 380,
    "engine_under_test/scheduler": 1_060,
    "fakes": 340,
    "harness": 180,
    "harness/bench": 960,
    "harness/commands": 2_340,
    "harness/core": 2_480,
    "harness/engines/demo": 0,
    "harness/engines/own": 1_240,
    "harness/engines/own/content": 360,
    "harness/engines/own/mutants": 2_100,
    "harness/engines/sglang": 3_420,
    "harness/engines/transformers": 0,
    "harness/engines/vllm": 2_520,
    "harness/engines/vllm_cpu": 0,
    "harness/engines/server": 0,
    "harness/front": 0,
    "harness/kit": 240,
    "harness/mutants": 320,
    "harness/nightly": 1_200,
    "harness/report": 840,
    "harness/search": 3_360,
    "harness/strict": 1_020,
    "harness/traces": 320,
    "invariants": 1_700,
    "invariants/contracts": 1_940,
    "invariants/laws": 2_060,
    "src": 20,
    "tests": 860,
    "tests/engine_under_test": 10_680,
    "tests/engines": 1_400,
    "tests/examples": 0,
    "tests/fakes": 380,
    "tests/harness": 9_740,
    "tests/hostile": 740,
    "tests/invariants": 5_740,
    "tests/cuda": 0,
    "tests/packaging": 0,
    "tests/real": 0,
    "tests/quality": 580,
}
# What has been added since, by folder: lines, and the capability that they bring.
GROWTH: Mapping[str, Sequence[tuple[int, str]]] = {
    "engine_under_test": [(20, "KV events know the pages of nodes that never held units")],
    "harness": [(20, "help lists the commands by their use")],
    "harness/commands": [
        (200, "a server over HTTP: --url and its options, swarden serve"),
        (60, "swarden demo"),
        (20, "a terminal breaks long texts between words"),
        (60, "help has groups of options, and a plain word for each value"),
        (20, "an op-log on another model, or on the stand-in"),
        (60, "campaigns, nights and replays with the fixes of known bugs"),
        (180, "swarden repro: a finding as a program of the engine's package, run here, or as an issue"),
        (20, "swarden repro with other settings, such as those of a server"),
        (20, "a target prepares the process of a single log, too"),
        (40, "swarden check: what a target lacks, gets wrong, and would gain"),
        (120, "swarden engines check: a release beside an older one"),
        (140, "swarden backtest"),
        (60, "a backtest replays with the defaults of the older release"),
        (200, "swarden engines try: the page of a new release"),
    ],
    "harness/engines/server": [
        (980, "any server over HTTP: four APIs, rounds, judged answers, at rest, restarts, a client as a program")
    ],
    "harness/front": [(420, "our engine behind HTTP in three APIs, which tests what drives servers")],
    "harness/core": [
        (20, "a target that is not repeatable: no digests, a rate"),
        (10, "namespaces of requests beside those of adapters"),
        (20, "options of a request: adapter, uncached, prompt_logprobs"),
        (20, "a shape says whether there is a host tier; a machine has its traffic and its turns"),
        (40, "op-logs of format 2 keep the defaults of their time"),
        (180, "one kind of process, of another Python too; was in harness/search and harness/commands"),
        (20, "a request may have a seed; a release may have another name on the index"),
        (40, "several patches of one function, methods that call super() or are decorated, and their qualified names"),
        (160, "known bugs as data: releases, fingerprints, related issues, documents, fixes"),
        (260, "the branches by which an engine leaves a request out of a step, with the numbers of their conditions"),
        (20, "a patch that a defined function cannot have is refused, and planting is all or nothing"),
        (20, "an op-log with fixes runs on releases that do not have their bugs"),
        (20, "fixes with the numbers of their lines"),
        (20, "a target prepares the process of a single log, too"),
        (20, "moved: the version of an op-log, of harness/commands"),
        (50, "requests with several sequences"),
    ],
    "harness/report": [
        (120, "the document of a known bug, for readers who do not know swarden, and the tables of an engine's"),
        (80, "a story says why no request was scheduled, and has the ops and the callers of a free"),
        (20, "the history of a cached block in the KV events"),
        (40, "programs from templates, with values as literals; a known bug as an issue"),
        (20, "a fix as a diff that git applies to the release"),
    ],
    "harness/kit": [
        (20, "one way to import a release quietly"),
        (320, "memory of tags, drafts, passes, owners and clients, of which each engine had its own"),
        (100, "declared settings, from which draws, JSON, defaults and errors follow"),
        (40, "the cache as a router knows it from KV events"),
        (20, "the calls that a release gets, for a program that makes the same ones"),
        (20, "the symptoms that such a program shows"),
        (360, "what an adapter reads of a release, and what another release has otherwise, from the sources"),
    ],
    "src": [
        (100, "swarden.kit, the public names for targets"),
        (20, "mutants of a target"),
        (20, "swarden.fuzz and swarden.replay"),
    ],
    "harness/search": [
        (100, "a backtest counts each cost once, and no fix where a default, a known bug or the adapter explains it"),
        (40, "the rate of a failure that is not in each run of its log"),
        (10, "crashes that are met while a finding is settled"),
        (30, "options of requests; lists of single ops"),
        (220, "every engine has the loads and the scenes that only ours had"),
        (20, "requests with seeds"),
        (180, "failures of known bugs, verified by their fixes"),
        (60, "a fix that kills the process is named, and not tried again"),
        (20, "laws whose events never came are named"),
        (20, "a campaign that reaches nothing new says so"),
        (240, "findings that are frozen, and judged by the next release"),
        (20, "runs of a short list of ops; ops while an engine is paused; relatives of prompts that are gone"),
        (30, "swarden.fuzz and swarden.replay"),
        (320, "swarden check: what a target lacks, gets wrong, and would gain"),
        (40, "each fix tried alone, bugs behind known ones, and logs whose shrink leads to another bug"),
    ],
    "harness/nightly": [
        (20, "known bugs of a night"),
        (20, "a night goes on with the shrink of its shard, and keeps the story of a finding"),
        (20, "the test of any op-log"),
    ],
    "harness/engines/own/mutants": [
        (10, "accepted drafts that are not kept"),
        (10, "KV events"),
        (10, "copies that write over what the cache has"),
        (10, "requests that are preempted or passed over in vain"),
        (30, "transfers that wait for what is not sent, and backups that are not made"),
    ],
    "harness/bench": [(120, "a search from a cold start beside a machine written by hand with Hypothesis")],
    "harness/engines/demo": [
        (200, "the engine of the demo and its target, which were tests/your_engine"),
        (60, "ten bugs of the demo's engine, for the benchmark of a cold start"),
    ],
    "harness/engines/own": [
        (300, "moved: limits, the memory walk and copies, of harness/components"),
        (200, "our engine as the strict check needs it: terms, holders; was in harness/strict"),
        (10, "a tiny model on a GPU"),
        (80, "KV events as a router reads them"),
        (60, "the pages that a transfer awaits, and the messages of a pair that were read"),
    ],
    "harness/engines/transformers": [
        (880, "the continuous batching of transformers behind the port, without its model"),
        (80, "a failing run as a program of transformers alone, with a tiny model"),
        (80, "bugs of the ledger, the sectors, the rings and the index tensors"),
    ],
    "harness/engines/vllm": [
        (10, "laws that could not fail are named, and not applicable"),
        (20, "adapters and prompt log-probabilities as options of a request"),
        (20, "blocks that are held outside the engine"),
        (20, "groups of layers in any order, also several of full attention"),
        (40, "op-logs of a server have its order of arrivals and its retention of cached blocks"),
        (20, "a runner and a device of another build"),
        (60, "KV events as a router reads them"),
        (140, "a failing run as a program of vLLM alone"),
        (30, "groups of smaller blocks are refused where parts of blocks are cached; pauses of the release"),
        (30, "copies that write over what the cache has"),
        (20, "preemptions that free nothing at once"),
        (40, "synchronous loads that fail"),
    ],
    "harness/engines/vllm_cpu": [
        (520, "the worker of a release and tiny models behind the port, the KV in memory by tag, bugs of the worker"),
        (80, "tiny models with recurrent layers, their states in memory by tag"),
        (20, "drafts of n-grams with a tiny model"),
    ],
    "harness/engines/sglang": [
        (10, "a client is refused for a failure that it cannot see"),
        (40, "full attention alone; settings that suit a load"),
        (80, "KV events as a router reads them"),
        (100, "a failing run as a client of a server, and the server's options"),
        (100, "a failing run as a program with the release's own scheduler, without a server"),
        (20, "copies that write over what the cache has"),
        (20, "the pages that a transfer awaits"),
        (100, "chunks of aborted transfers that are written late, and the acknowledgement that they were"),
        (20, "adapters and uncached prompts as options of a request"),
    ],
    "invariants": [
        (20, "events of a server seen over HTTP"),
        (20, "KV that was compared with that first computed for the same tokens"),
        (20, "KV events as a router reads them"),
        (10, "what a transfer awaits, and what was delivered"),
        (40, "copies that write over what the cache has"),
        (10, "requests that are taken back while passes are in flight"),
        (20, "memory that moves between groups of layers, rings, requests that wait with their KV"),
    ],
    "invariants/contracts": [
        (60, "what ended requests leave in the cache, also of their last step"),
        (80, "what ended requests leave on the host, with write-through"),
        (40, "preemptions that free nothing at once"),
        (30, "running requests that are passed over"),
        (30, "leaves that no prompt can match"),
    ],
    "invariants/laws": [
        (40, "laws of servers: requests are answered, at rest all is empty, the capacity is whole"),
        (30, "uncached requests, passes that compute ended requests"),
        (20, "KV that was compared with that first computed for the same tokens"),
        (60, "KV events as a router reads them"),
        (20, "prompts that are computed after their abort"),
        (40, "transfers await only what is sent"),
    ],
    "tests/examples": [(440, "an engine with a prefix cache and its target in three levels, as the guide has them")],
    "tests/fakes": [(40, "messages of a link that were not read")],
    "tests/invariants": [
        (40, "laws of servers"),
        (20, "passes that compute ended requests"),
        (40, "first passes that compute what is cached; laws that an adapter names"),
        (50, "bounds of releases after an abort, uncached requests, write-through beside other copies"),
        (100, "memory that moves between groups of layers, rings, requests that wait with their KV"),
        (130, "what ended requests leave in the cache, also behind pages that it replaced, and on the host"),
        (40, "KV that was compared with that first computed for the same tokens"),
        (80, "KV events as a router reads them"),
        (30, "copies that write over what the cache has"),
        (30, "prompts that are computed after their abort; requests that are never answered"),
        (20, "preemptions that free nothing at once"),
        (30, "running requests that are passed over"),
        (20, "leaves that no prompt can match"),
        (80, "transfers await only what is sent"),
        (10, "requests that are taken back while passes are in flight"),
        (20, "memory that moves between groups of layers, rings, requests that wait with their KV"),
    ],
    "tests": [
        (20, "the tables of the backtests are those of the results that ship"),
        (20, "the outbox has the client of a server where no program shows a bug"),
        (40, "the documents of known bugs are those of their files"),
        (140, "the stories and the picture in the documents are what is printed; a build as it is published"),
        (50, "the rules of new folders"),
        (140, "lines of this budget"),
        (100, "the outbox: what can be posted, and what its programs have shown"),
        (40, "documents and the outbox are held to the data, and have nothing of a private bug"),
        (20, "the texts of the outbox around their programs"),
        (10, "the public names of an example"),
        (30, "the texts of the outbox around their programs"),
    ],
    "harness/strict": [(120, "attach --require: a command without the check is ended; what a process says of it")],
    "tests/engine_under_test": [
        (20, "the tests of models run on a GPU, too; the output of a kernel with other strides")
    ],
    "tests/engines": [
        (80, "op-logs pass with the fix of their bug; releases from the files of the bugs"),
        (40, "servers with groups of layers in other orders"),
        (80, "programs of vLLM show their bugs, and pass without them"),
        (40, "the diff of each fix is applied to its release"),
        (20, "the parts in the sources of releases are those of their import"),
        (120, "each part of transformers' continuous batching is driven"),
    ],
    "tests/harness": [
        (200, "definitions in each kind of block; what a backtest and the page of a release must not count"),
        (220, "servers over HTTP: ours in three APIs, planted bugs, servers that misbehave"),
        (30, "crashes that are met while a finding is settled; late chunks; journals of earlier builds"),
        (30, "requests with several sequences"),
        (20, "late pages of aborted transfers, options of requests"),
        (80, "configurations suit their loads; scenes have only what their engine has"),
        (40, "the demo's engine as a package of a user, in place of tests/your_engine"),
        (20, "long texts on a terminal"),
        (20, "laws whose events never came"),
        (40, "the help of each command"),
        (80, "the strict check of any engine that its target describes"),
        (80, "a process of another Python, and each kind of death as data"),
        (20, "a shrink goes on, and a finding keeps its story"),
        (180, "stories that say why"),
        (340, "the blocks of the kit"),
        (420, "releases beside older ones, the page of a new one, and backtests over them"),
        (60, "attach --require, and what a process says of it"),
        (80, "several patches of one function"),
        (120, "the files of known bugs"),
        (140, "campaigns and replays with the fixes of known bugs"),
        (160, "failures of known bugs, verified by their fixes"),
        (240, "swarden repro: literals, what it refuses, also by its failure, the options of a server"),
        (80, "fixes of an op-log on other releases, fixes that kill the process, what a night keeps of a finding"),
        (20, "crashes behind known bugs, and fixes that are put aside"),
        (20, "a target prepares the process of a single log, too"),
        (40, "the public names"),
        (180, "swarden check: what a target lacks, gets wrong, and would gain"),
        (100, "swarden repro with other settings; what it refuses of private bugs, and of known bugs that do not show"),
        (20, "fixes with the numbers of their lines"),
    ],
    "tests/cuda": [(140, "our engine on a GPU: outputs, copies on a stream, random traffic")],
    "tests/packaging": [(120, "wheel and sdist are tried in empty environments")],
    "tests/real": [(480, "a real vLLM on the CPU below attach: models, traffic over HTTP, costs of each level")],
    "tests/quality": [
        (960, "moved: the parts of our engine and their naive models, of harness/components"),
        (420, "moved: engines that are perturbed, of harness/perturbed and harness/bench"),
        (840, "moved: generic mutation, of harness/mutants/generic, harness/commands and tests/harness"),
        (120, "the CPU seconds until each listed bug is found, on two trees, and a paired test"),
    ],
}


def num_code_lines(module: Module) -> int:
    """The lines of a module that are neither blank nor of a docstring."""
    lines = {number for number, line in enumerate(module.source.splitlines(), start=1) if line.strip()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def lines_by_folder(modules: Iterable[Module]) -> Counter[str]:
    """The lines of code for each folder of the budget; a module outside of all folders counts for its own path."""
    counts: Counter[str] = Counter()
    for module in modules:
        above = [folder for folder in LINES if module.path.startswith(f"{folder}/")]
        counts[max(above, key=len, default=module.path)] += num_code_lines(module)
    return counts


def over_budget(modules: Iterable[Module]) -> list[str]:
    """A line for each folder with more lines than its budget."""
    allowed = {folder: lines + sum(more for more, _ in GROWTH.get(folder, ())) for folder, lines in LINES.items()}
    return [
        f"{folder}: {lines} lines of code, the budget is {allowed.get(folder, 0)}: delete some, or name the capability"
        for folder, lines in sorted(lines_by_folder(modules).items())
        if lines > allowed.get(folder, 0)
    ]
