"""The events of a night, as lines of JSON; docs/events.schema.json is their schema."""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that has happened in a night; the field `event` of the line has the kind."""


class Phase(Event, frozen=True, tag="phase"):
    """A phase has ended; `line` is its line on the terminal."""

    night: str
    name: str
    line: str
    seconds: float


class Runs(Event, frozen=True, tag="runs"):
    """A shard has ended: the runs of `batches` batches from `first_batch` with the night's seed, made on `node`."""

    engine: str
    shard: int
    first_batch: int
    batches: int
    node: str
    runs: int
    steps: int
    failed_runs: int
    seconds: float
    cpu_seconds: float


class ProbeReached(Event, frozen=True, tag="probe"):
    """The first run of the night that has reached this rare state was in this shard."""

    engine: str
    name: str
    shard: int


class FindingResult(Event, frozen=True, tag="finding"):
    """The result for one finding; `folder` is its name in the archive's `findings`."""

    engine: str
    fingerprint: str
    status: str
    folder: str
    is_quarantined: bool


class WorkerReplaced(Event, frozen=True, tag="worker"):
    """A worker process has died in this shard, and another one has taken its place."""

    engine: str
    shard: int
    reason: str


class ShardLost(Event, frozen=True, tag="lost"):
    """A node was lost with this job, which runs elsewhere from its beginning."""

    job: str
    reason: str


KINDS = Phase | Runs | ProbeReached | FindingResult | WorkerReplaced | ShardLost


def schema() -> bytes:
    """The JSON Schema of a line."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(KINDS)), indent=1) + b"\n"
