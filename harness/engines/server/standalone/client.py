"""Start a server, then run this client with its URL; it needs no package.

Exit code 1 and a line that begins with BUG with the bug, 0 without it.  A failure that depends on the order in which
requests arrive may need several attempts.
"""

import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, NoReturn

LAUNCH = ""
FOUND_AT = ""  # only the address of the command line is called
if len(sys.argv) != 2:
    print("usage: python client.py http://HOST:PORT", file=sys.stderr)
    sys.exit(2)
URL = sys.argv[1].rstrip("/")
PATH = ""
HAS_IDS = False  # else tokens are characters
TOLERANCE = 0.0  # of log-probabilities
CALLS_AT_ONCE = 1
EMPTY_AT_REST: list[str] = []  # metrics
ROUNDS: list[dict[str, Any]] = []  # each: acts at rest, then calls, perhaps while the server is paused


def post(path: str, body: Any, most: int | None = None) -> list[Any]:
    """The JSON objects of a stream; after `most` of them the client goes away."""
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    objects: list[Any] = []
    if most == 0:  # the client leaves before the first token
        with suppress(OSError):
            urllib.request.urlopen(request, timeout=0.1).close()
        return []
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            for line in answer:
                if most is not None and len(objects) >= most:
                    return []
                line = line.removeprefix(b"data:").strip()
                if line and line != b"[DONE]":
                    objects.append(json.loads(line))
    except urllib.error.HTTPError as error:
        if error.code not in (429, 503) and error.code >= 500:
            bug(f"status {error.code}: {error.read(300)!r}")
        return []
    except OSError as error:
        bug(f"no answer: {error}")
    return objects


def bug(text: str) -> NoReturn:
    print("BUG:", text)
    sys.exit(1)


def tokens(chunks: list[Any]) -> list[Any]:
    """The tokens of an answer, each with its log-probability."""
    answer: list[Any] = []
    for chunk in chunks:
        if chunk.get("index"):  # only the first of several answers is judged
            continue
        if "meta_info" in chunk:  # each object has the whole answer so far
            answer = [(token, logprob) for logprob, token, _ in chunk["meta_info"].get("output_token_logprobs", [])]
        for token in chunk.get("completion_probabilities") or []:
            answer.append((token["id"], token["logprob"]))
        for choice in [choice for choice in chunk.get("choices") or [] if not choice.get("index")]:
            logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
            ids = choice.get("token_ids") or list(choice.get("text") or "")
            answer += zip(ids, logprobs or [None] * len(ids))
    return answer


def text_of(chunks: list[Any]) -> str:
    """The text of the first answer."""
    if chunks and "meta_info" in chunks[-1]:  # each object has the whole answer so far
        return [chunk for chunk in chunks if not chunk.get("index")][-1].get("text") or ""
    parts = [part for chunk in chunks for part in chunk.get("choices") or [chunk] if not part.get("index")]
    return "".join(part.get("text") or part.get("content") or "" for part in parts)


def send(call: Any) -> list[Any]:
    if "path" in call:
        post(call["path"], {})
        return []
    chunks = post(PATH, call["body"], call["cut_after"])
    answer, text = tokens(chunks), text_of(chunks)
    if HAS_IDS and len(answer) > call["most"]:
        bug(f"{len(answer)} tokens, {call['most']} were requested")
    for stop in call["stop_texts"]:
        if 0 <= text.find(stop) < len(text) - len(stop):
            bug(f"the answer goes on behind the stop string {stop!r}")
    return answer


def in_use() -> list[str]:
    try:
        with urllib.request.urlopen(URL + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:  # not enabled
        return []
    return [line for line in lines if line.startswith(tuple(EMPTY_AT_REST)) and float(line.rsplit(" ", 1)[1])]


for number, begun in enumerate(ROUNDS, 1):
    for path in [*begun["at_rest"], *begun["paused"][:1]]:
        post(path, {})
    with ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
        jobs = [threads.submit(send, call) for call in begun["calls"]]
        if begun["paused"]:
            wait(jobs, timeout=0.1 + len(jobs) / 100)  # all have arrived
            post(begun["paused"][1], {})
        answers = [job.result() for job in jobs]
    for call, answer in zip(begun["calls"], answers):
        if not answer or call["cut_after"] is not None:
            continue
        for place, (mine, other) in enumerate(zip(answer, tokens(post(PATH, call["cold"])))):
            has_logprobs = mine[1] is not None and other[1] is not None
            if mine[0] != other[0] and "seed" in json.dumps(call["body"]):
                break  # another draw
            if abs(mine[1] - other[1]) > TOLERANCE if has_logprobs else mine[0] != other[0]:
                bug(f"round {number}: token {place} is {mine}, without the prefix cache {other}")
            if mine[0] != other[0]:
                break
if EMPTY_AT_REST and in_use():
    post(PATH, {**ROUNDS[0]["calls"][0].get("body", {}), "stream": True})  # some servers count only at the next request
    if left := in_use():
        bug("all requests are answered, and the metrics show " + ", ".join(left))
print("no bug")
