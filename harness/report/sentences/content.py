"""The sentences of the laws of content."""

from collections.abc import Mapping

from invariants.laws.content.outputs import OutputCode
from invariants.laws.content.reads import ReadCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    ReadCode.UNWRITTEN: "position {position} in {place} is read and was never written",
    ReadCode.OTHER_CONTENT: "position {position} in {place} holds the KV of other tokens (known from: {known_from})",
    ReadCode.NOT_READ: "{pool} is not read, want [{want_start}, {want_end})",
    ReadCode.READ_IN_PART: "only [{start}, {end}) of {pool} is read, want [{want_start}, {want_end})",
    OutputCode.WRONG_TOKEN: "token {token} at position {position}, the reference has {want}",
    OutputCode.WRONG_LOGITS: (
        "the logits at position {position} of [{start}, {end}) are off by {difference}, tolerance {tolerance}"
    ),
    OutputCode.WRONG_TOKEN_SAMPLED: "token {token} is sampled at position {position}, the uncached model has {want}",
    OutputCode.WRONG_TOKEN_STREAMED: "token {token} is streamed at position {position}, the uncached model has {want}",
    OutputCode.NOT_COMPUTED: "{num_new} new tokens are streamed, {num_computed} valid results landed",
    OutputCode.TOO_LONG: "{num_outputs} tokens are streamed, {asked} were asked for",
}
