"""What is known of a server, and how a run drives it."""

from typing import Annotated

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Pool, Shape
from swarden.harness.engines.server.apis import APIS
from swarden.harness.kit.dialects import FLUSH, PAUSE
from swarden.harness.kit.settings import Drawn, OneOf, PartOf, Settings, declared, default_of, within

MOST_TOKENS = 1 << 20


class ServerConfig(Settings, frozen=True):
    """A server, as `--url` names it and as it describes itself, and the way in which a run drives it.

    0 and "" stand for what is not known.  `url`, `launch` (the command of --restart) and `header_names` tell the reader
    of an op-log what was driven; a replay takes them from its own command line.  `release` is that of the server, such
    as "vllm==0.33.0".  A token of a prompt is in [`first_token`, `last_token`], and is not valid from `vocabulary` on.
    Prompts end near multiples of `block_size` and `window`.  The KV memory holds `capacity` tokens.  A new server
    answers a cold prompt of `probe_len` tokens without a preemption.  The `texts` have occurred in answers.  A run does
    without the features in `left_out`, such as seed: those of a known bug, or those that the server lacks.

    The requests of a round are sent at the same time if they are `concurrent`, and while the server is paused with
    `paused`: then they run together when it resumes.  With `stops_by_text` some of the `texts` stand in the place of
    stop tokens.  With `sleeps` a pause sends the server to sleep before a round.
    """

    api: Annotated[str, OneOf(tuple(APIS))] = "vllm"
    url: str = ""
    launch: str = ""
    header_names: tuple[str, ...] = ()
    model: str = ""
    release: str = ""
    first_token: Annotated[int, within(0, MOST_TOKENS)] = 3
    last_token: Annotated[int, within(1, MOST_TOKENS)] = 127
    vocabulary: Annotated[int, within(0, MOST_TOKENS)] = 0
    block_size: Annotated[int, within(1, 1 << 16)] = 16
    window: Annotated[int, within(0, MOST_TOKENS)] = 0
    max_context_len: Annotated[int, within(8, MOST_TOKENS)] = 1024
    capacity: Annotated[int, within(0, 1 << 40)] = 0
    probe_len: Annotated[int, within(0, MOST_TOKENS)] = 0
    tolerance: Annotated[float, within(0, 100)] = 2e-3
    texts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    concurrent: Annotated[bool, Drawn((True, True, False))] = False
    paused: Annotated[bool, Drawn((False, True)), PartOf("concurrent")] = False
    stops_by_text: Annotated[bool, Drawn((False, False, True))] = False
    sleeps: Annotated[bool, Drawn((False, False, True))] = False

    main = ("api", "model", "concurrent")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_valid <= self.first_token:
            raise InvalidConfig(f"the last token is {self.last_valid}, want more than first_token {self.first_token}")
        if self.paused and not (self.concurrent and PAUSE in APIS[self.api].dialect.acts):
            raise InvalidConfig("paused is true, want false: the API has no pause, or requests are not concurrent")
        if others := {*self.left_out} - APIS[self.api].features:
            raise InvalidConfig(f"left_out has {min(others)}, want of {', '.join(sorted(APIS[self.api].features))}")

    @property
    def last_valid(self) -> int:
        return min(self.last_token, self.vocabulary - 1) if self.vocabulary else self.last_token

    @property
    def features(self) -> frozenset[str]:
        """The options that a request has here, beside its prompt and its length; and abort and sleep."""
        return APIS[self.api].features - {*self.left_out}

    @property
    def shape(self) -> Shape:
        units = self.capacity // self.block_size or 1 << 16
        window = (Pool("window", units, self.window),) if self.window else ()
        api = APIS[self.api]
        return Shape(
            self.block_size,
            (Pool("context", units), *window),
            None,
            8,
            self.max_context_len,
            unused=() if FLUSH in api.dialect.acts else ("flush",),
            samples="seed" in self.features,
            options=("sequences",) if "n" in self.features else (),
            outputs=(self.window + 2 * self.block_size,) if self.window else (),
        )


LEARNED = tuple([name for name in default_of(ServerConfig) if name not in declared(ServerConfig, Drawn)])
