"""The configuration of an engine; its constructor validates it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from reprlib import repr as shortened
from typing import Any, NamedTuple

from swarden.engine_under_test import limits
from swarden.engine_under_test.components import STATE_WINDOW, Component, RecurrentState, component_of
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.units import align_up, lookback, num_pages

PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PAGE_REUSES = ("lifo", "fifo")
WAITING_ORDERS = ("fcfs", "lpm")
ROLES = ("both", "prefill", "decode")
PAGE_COUNTS = ("full_pages", "swa_pages", "state_pages", "host_full_pages", "host_swa_pages", "host_state_pages")
HOST_POLICIES = ("write_through", "write_through_selective", "write_back")


class PoolSpec(NamedTuple):
    """One KV pool: usable pages, and the window of its layers (None: the whole prefix)."""

    name: str
    num_pages: int
    window: int | None
    slots: int = 0  # states of a page; 0: a slot for each of its tokens


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The settings of an engine; page counts exclude the padding page 0, and a pool of 0 pages does not exist.

    For recurrent layers a request has pages for its newest states and for checkpoints; a prefix is cached for these
    layers only up to such a state.  Admission estimates the output of each request: its remaining tokens, at most
    `max_estimated_new_tokens`, times a ratio that falls from `new_token_ratio` to `new_token_ratio_floor` in
    `new_token_ratio_decay_steps` decode steps, and is set anew after a retraction.

    An engine with the `role` "prefill" computes prompts, and transfers their KV over a link to an engine with the role
    "decode", which has no pools on the host.  A transfer fails after `link_timeout_ms` without a message from the peer,
    or after twice that while its request waits for pages of the decode engine; a link that reports the peer's passes
    extends both by them.  A message must arrive within `link_timeout_ms`.  Each end of a link holds at most
    `link_buffer_bytes` that wait to be sent, and as many that were received, and a frame more of each.

    Raises ConfigError with the field, the value and the accepted values.
    """

    page_size: int = 16
    full_pages: int = 256
    swa_pages: int = 0
    sliding_window: int | None = None  # tokens that a position sees, itself included, as in Hugging Face configurations
    state_pages: int = 0
    state_slots: int = 3  # states of a page of recurrent layers
    state_interval: int | None = None  # of checkpoints, in tokens of the input; None: no checkpoints
    max_running_requests: int = 16
    max_context_len: int = 4096
    chunk_len: int | None = 512  # the most tokens of prompts in a batch; None: no limit
    waiting_order: str = "fcfs"  # of equal priority: first come, first served; "lpm": the longest cached prefix first
    page_reuse: str = "lifo"  # the next page to take is the one freed last ("lifo") or first ("fifo")
    prefix_sharing: bool = True  # else nothing is cached
    overlap: bool = False  # a step is launched before the result of the previous step is known
    mixed_batches: bool = False  # running requests decode in the batch of a prefill, and their tokens count too
    lookahead_tokens: int = 0  # after the next token, for which each decode reserves pages
    draft_tokens: int = 0  # verified there; accepted are those that the model would have sampled
    preemption_threshold: int | None = None  # a request preempts one whose priority is lower by more; None: never
    max_forward_retries: int = 2  # a request ends when more of its passes have failed
    request_timeout_ms: int | None = None  # a request ends so long after its arrival; None: never
    window_eviction_interval: int = 1  # tokens: pages that leave the window are freed once they are as many
    max_recorded_ops: int = 10_000  # the last calls of the engine, of which a checker keeps a record
    poison_freed_pages: bool = False  # a freed page is overwritten, so that a stale read of it shows in the output
    checksum_transfers: bool = False  # of each page that is sent or swapped out, for a checker to compare
    host_full_pages: int = 0
    host_swa_pages: int = 0
    host_state_pages: int = 0
    host_policy: str = "write_through"  # a node is copied at once, at its first match, or at its eviction
    load_back_threshold: int = 10  # tokens that a load must save, unless windowed pages or states are missing
    idle_session_share: float = 0.5  # of each pool, which idle sessions may keep
    session_timeout_ms: int | None = None  # a session is closed after so long without use; None: never
    new_token_ratio: float = 0.7
    new_token_ratio_floor: float = 0.098
    new_token_ratio_decay_steps: int = 600
    max_estimated_new_tokens: int = 4096
    role: str = "both"
    link_retry_ms: int = 200  # after which unanswered messages are retransmitted
    link_timeout_ms: int = 10_000
    link_frame_bytes: int = 1 << 24  # bytes of pages in one message, at most
    link_buffer_bytes: int = 1 << 28
    reserved_decode_tokens: int = 16  # of each running request and transfer, for which a new transfer leaves pages free

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_counts()
        self._check_link()
        self._check_window()
        self._check_states()
        self._check_host()
        check_size([self])

    @property
    def pools(self) -> tuple[PoolSpec, ...]:
        """The KV pools; first the anchor, whose pages requests and tree nodes name."""
        specs = (
            PoolSpec("full", self.full_pages, None),
            PoolSpec("swa", self.swa_pages, self.sliding_window),
            PoolSpec("state", self.state_pages, STATE_WINDOW, min(self.state_slots, self.page_size)),
        )
        return tuple(spec for spec in specs if spec.num_pages)

    @property
    def components(self) -> tuple[Component, ...]:
        """What the layers of each of `pools` read; in the same order."""
        return tuple(map(self._component, self.pools))

    @property
    def host_pools(self) -> tuple[PoolSpec, ...]:
        """The pools of the host tier, one for each of `pools` and in their order; () if there is no host tier."""
        sizes = {"full": self.host_full_pages, "swa": self.host_swa_pages, "state": self.host_state_pages}
        specs = [spec._replace(name=f"host {spec.name}", num_pages=sizes[spec.name]) for spec in self.pools]
        return tuple(spec for spec in specs if spec.num_pages)

    def for_side(self, role: str) -> "EngineConfig":
        """The configuration of one side: prefill without drafts, decode without pools on the host."""
        if role == "prefill":
            return replace(self, role=role, lookahead_tokens=0, draft_tokens=0)
        return replace(self, role=role, host_full_pages=0, host_swa_pages=0, host_state_pages=0)

    @property
    def most_launches(self) -> int:
        """The limit of passes in flight."""
        return 2 if self.overlap else 1

    @property
    def least_swa_pages(self) -> int:
        """The smallest SWA pool in which one request can always finish, lookahead included."""
        assert self.sliding_window is not None, "the engine has no sliding window"
        return least_windowed_pages(self.sliding_window, self.page_size, lookahead_tokens=self.lookahead_tokens)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "EngineConfig":
        """The configuration of a mapping from `to_mapping`; an unknown field is a ConfigError."""
        known = {field.name for field in fields(cls)}
        for name in mapping:
            if name not in known:
                raise ConfigError(f"{name}: no such field; the fields are {', '.join(sorted(known))}")
        return cls(**mapping)

    def to_mapping(self) -> dict[str, Any]:
        return asdict(self)

    def _component(self, spec: PoolSpec) -> Component:
        if spec.slots:
            slots, interval = self.state_slots, self.state_interval
            return RecurrentState(spec.name, spec.num_pages, self.page_size, slots=slots, interval=interval)
        return component_of(spec.name, spec.num_pages, window=spec.window, page_size=self.page_size)

    def _check_choices(self) -> None:
        for name, choices in (
            ("page_size", PAGE_SIZES),
            ("page_reuse", PAGE_REUSES),
            ("host_policy", HOST_POLICIES),
            ("waiting_order", WAITING_ORDERS),
            ("role", ROLES),
        ):
            value = getattr(self, name)
            if value not in choices or type(value) is not type(choices[0]):
                raise ConfigError(f"{name}: {shortened(value)} is not one of {', '.join(map(str, choices))}")
        for name in ("prefix_sharing", "overlap", "mixed_batches", "poison_freed_pages", "checksum_transfers"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name}: {shortened(value)} is not true or false")

    def _check_counts(self) -> None:
        _check_count("max_context_len", self.max_context_len, 2, most=limits.MAX_CONTEXT_LEN)
        _check_count("max_recorded_ops", self.max_recorded_ops, 1, most=limits.MAX_RECORDED_OPS)
        for name, least in (
            *[(name, 0) for name in PAGE_COUNTS],
            ("state_slots", 2),
            ("load_back_threshold", 1),
            ("max_running_requests", 1),
            ("window_eviction_interval", 1),
            ("lookahead_tokens", 0),
            ("draft_tokens", 0),
            ("max_forward_retries", 0),
            ("new_token_ratio_decay_steps", 1),
            ("max_estimated_new_tokens", 1),
            ("reserved_decode_tokens", 0),
        ):
            _check_count(name, getattr(self, name), least)
        optional = (
            ("chunk_len", 1),
            ("state_interval", 1),
            ("request_timeout_ms", 1),
            ("preemption_threshold", 0),
            ("session_timeout_ms", 1),
        )
        for name, least in optional:
            if (count := getattr(self, name)) is not None:
                _check_count(name, count, least)
        for name in PAGE_COUNTS:
            if (pages := getattr(self, name)) * self.page_size > limits.MAX_POOL_TOKENS:
                raise ConfigError(
                    f"{name}: {pages} pages of {self.page_size} tokens; want at most {limits.MAX_POOL_TOKENS} tokens"
                )
        if not self.full_pages and not self.swa_pages:
            raise ConfigError("full_pages: 0 with swa_pages 0 leaves no pool; give one of them pages")
        if self.draft_tokens > self.lookahead_tokens:
            raise ConfigError(
                f"draft_tokens: {self.draft_tokens} with lookahead_tokens {self.lookahead_tokens}, "
                "which reserves their pages; want at most as many"
            )
        if not 0 <= self.idle_session_share <= 1:
            raise ConfigError(f"idle_session_share: {self.idle_session_share}; want 0 to 1")
        if not 0 < self.new_token_ratio_floor <= self.new_token_ratio <= 1:
            raise ConfigError(
                f"new_token_ratio: {self.new_token_ratio} with new_token_ratio_floor {self.new_token_ratio_floor}; "
                "want 0 < new_token_ratio_floor <= new_token_ratio <= 1"
            )

    def _check_link(self) -> None:
        for name in ("link_retry_ms", "link_timeout_ms", "link_frame_bytes", "link_buffer_bytes"):
            _check_count(name, getattr(self, name), 1)
        if self.link_timeout_ms <= self.link_retry_ms:
            raise ConfigError(
                f"link_timeout_ms: {self.link_timeout_ms} with link_retry_ms {self.link_retry_ms}, "
                "after which messages are retransmitted; want more"
            )

    def _check_window(self) -> None:
        if not self.swa_pages:
            if self.sliding_window is not None:
                raise ConfigError(
                    f"sliding_window: {self.sliding_window} with swa_pages 0; give swa_pages or leave the window out"
                )
            return
        if self.sliding_window is None:
            raise ConfigError(f"sliding_window: not given, and swa_pages is {self.swa_pages}; want at least 2 tokens")
        _check_count("sliding_window", self.sliding_window, 2, most=limits.MAX_CONTEXT_LEN)
        if self.swa_pages < self.least_swa_pages:
            raise ConfigError(
                f"swa_pages: {self.swa_pages} cannot hold one request with sliding_window {self.sliding_window} "
                f"and page_size {self.page_size}; want at least {self.least_swa_pages}"
            )

    def _check_states(self) -> None:
        if not self.state_pages:
            return
        if not self.full_pages:
            raise ConfigError(
                f"state_pages: {self.state_pages} with full_pages 0; states belong to pages of the whole prefix, so "
                "give full_pages"
            )
        least = least_state_pages(self.page_size, lookahead_tokens=self.lookahead_tokens)
        if self.state_pages < least:
            raise ConfigError(
                f"state_pages: {self.state_pages} cannot hold one request with page_size {self.page_size}; "
                f"want at least {least}"
            )
        kept = max(1 + self.draft_tokens, self.most_launches)
        if self.state_slots <= kept:
            raise ConfigError(
                f"state_slots: {self.state_slots} with draft_tokens {self.draft_tokens} and {self.most_launches} "
                f"passes in flight; want at least {kept + 1}, so that a request can go on before any of them"
            )
        if self.state_interval is not None and self.state_interval % self.page_size:
            raise ConfigError(
                f"state_interval: {self.state_interval} is no multiple of page_size {self.page_size}, "
                "at whose multiples checkpoints are"
            )

    def _check_host(self) -> None:
        if not self.host_full_pages and not self.host_swa_pages and not self.host_state_pages:
            return
        for name, pages, host_pages in (
            ("full_pages", self.full_pages, self.host_full_pages),
            ("swa_pages", self.swa_pages, self.host_swa_pages),
            ("state_pages", self.state_pages, self.host_state_pages),
        ):
            if bool(pages) != bool(host_pages):
                raise ConfigError(
                    f"host_{name}: {host_pages} with {name} {pages}; give every pool one on the host, or none"
                )
        if self.role == "decode":
            raise ConfigError(
                "role: decode with pools on the host, from which it would load nothing; "
                "give the pools to the prefill engine, or leave them out"
            )
        if not self.prefix_sharing:
            raise ConfigError("prefix_sharing: false with pools on the host, which hold shared prefixes; leave one out")
        if self.sliding_window is not None:
            least = num_pages(lookback(self.sliding_window), self.page_size)
            if self.host_swa_pages < least:
                raise ConfigError(
                    f"host_swa_pages: {self.host_swa_pages} cannot hold one window of {self.sliding_window} tokens "
                    f"with page_size {self.page_size}; want at least {least}"
                )


def least_windowed_pages(window: int, page_size: int, *, lookahead_tokens: int) -> int:
    """The most pages of a windowed pool that one request needs at one time."""
    kept = align_up(max(lookback(window), page_size), page_size)
    return kept // page_size + 2 + num_pages(lookahead_tokens, page_size)


def least_state_pages(page_size: int, *, lookahead_tokens: int) -> int:
    """The most pages of states that one request needs at one time, beside its checkpoints."""
    return least_windowed_pages(STATE_WINDOW, page_size, lookahead_tokens=lookahead_tokens)


def check_size(configs: Sequence[EngineConfig]) -> None:
    """Raises ConfigError if engines of these configurations, which run at the same time, have too many units."""
    units = entries = 0
    for config in configs:
        rows = config.max_running_requests
        units += rows + sum(pool.num_pages for pool in (*config.pools, *config.host_pools))
        entries += rows * num_pages(config.max_context_len, config.page_size)
    for names, count, most in (
        ("the pages of all pools, those on the host too, and max_running_requests", units, limits.MAX_UNITS),
        ("max_running_requests times the pages of max_context_len", entries, limits.MAX_TABLE_ENTRIES),
    ):
        if count > most:
            raise ConfigError(f"{names}: {count} in all; want at most {most}")


def _check_count(name: str, value: object, least: int, *, most: int = limits.MAX_NUMBER) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}: {shortened(value)} is not a whole number of at least {least}")
    if value > most:
        raise ConfigError(f"{name}: {shortened(value)} is more than {most}")
