"""Start a server, then run this client.  It needs no package.  Exit code 1 with the bug, 0 without it, 2 for all else.

MODEL has layers as the settings say (a sliding window: gpt-oss or Gemma 4; a server has no windowed pool for Gemma 3).
The sizes are small, and can be larger; a step of the scheduler is a pause of this client, so several attempts may be
necessary.  Answers are not compared.
"""

import http.client
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

LAUNCH = ""
SERVER = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000"
STEP_S = 0.05
ANSWER_S = 60.0


class Bug(Exception): ...


# --- the case
def run(client: "Client") -> None:
    client.finish()


def post(path: str, body: Any) -> str:
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        return str(answer.read().decode())


class Client:
    def __init__(self) -> None:
        self.requests: list[tuple[str, threading.Thread]] = []
        self.sessions: list[str] = []
        self.errors: list[str] = []

    def generate(self, input_ids: list[int], max_new_tokens: int, **more: Any) -> None:
        """The further arguments are those of the request, and the `session` with its `offset`."""
        rid = f"request-{len(self.requests) + 1}"
        sampling = {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}
        if stop := more.pop("stop_token_ids", None):
            sampling["stop_token_ids"] = stop
        if session := more.pop("session", None):
            more["session_params"] = {"id": self.sessions[session - 1], "offset": more.pop("offset", None)}
        body = {"rid": rid, "input_ids": input_ids, "sampling_params": sampling, **more}
        thread = threading.Thread(target=self.send, args=(rid, body), daemon=True)
        thread.start()
        self.requests.append((rid, thread))

    def send(self, rid: str, body: Any) -> None:
        try:
            post("/generate", body)
        except urllib.error.HTTPError as error:
            print(f"{rid}: {error.code} {error.read().decode()[:200]}")  # a refusal is an answer
        except (OSError, http.client.HTTPException) as error:
            self.errors.append(f"{rid}: {error}")

    def step(self, count: int) -> None:
        time.sleep(count * STEP_S)

    def abort(self, number: int) -> None:
        post("/abort_request", {"rid": f"request-{number}"})

    def open_session(self) -> None:
        self.sessions.append(json.loads(post("/open_session", {"capacity_of_str_len": 0, "streaming": True})))

    def close_session(self, session: int) -> None:
        post("/close_session", {"session_id": self.sessions[session - 1]})

    def flush(self) -> None:
        post("/flush_cache", {})

    def pause(self) -> None:
        post("/pause_generation", {"mode": "retract"})

    def resume(self) -> None:
        post("/continue_generation", {})

    def finish(self) -> None:
        """All requests are answered, and the server is alive."""
        for rid, thread in self.requests:
            thread.join(ANSWER_S)
            if thread.is_alive():
                raise Bug(f"{rid} is not answered after {ANSWER_S:.0f} s")
        if self.errors:
            raise Bug("; ".join(self.errors))
        try:
            post("/flush_cache", {})
            self.generate([1, 2, 3], 1)
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            raise Bug(f"the server does not answer: {error}") from error
        self.requests[-1][1].join(ANSWER_S)
        if self.requests[-1][1].is_alive() or self.errors:
            raise Bug("a further request is not answered")


if __name__ == "__main__":
    try:
        urllib.request.urlopen(SERVER + "/health", timeout=ANSWER_S)
    except OSError as error:
        print(f"no server at {SERVER}: {error}; start {LAUNCH}")
        sys.exit(2)
    try:
        run(Client())
    except Bug as bug:
        print(f"BUG: {bug}")
        sys.exit(1)
    except Exception as error:
        if isinstance(getattr(error, "reason", error), ConnectionError):
            print(f"BUG: the server is gone: {error}")
            sys.exit(1)
        print(f"not run to the end: {type(error).__name__}: {error}")
        sys.exit(2)
    print("no bug")
