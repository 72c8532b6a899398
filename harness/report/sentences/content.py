"""The sentences of the laws of content."""

from collections.abc import Mapping

from invariants.laws.content.copies import CopyCode
from invariants.laws.content.drafts import DraftCode
from invariants.laws.content.matches import MatchCode
from invariants.laws.content.outputs import OutputCode
from invariants.laws.content.reads import ReadCode
from invariants.laws.content.slots import BytesCode
from invariants.laws.content.twins import TwinCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    CopyCode.DIFFERS: "holds other content than {copy}, the other end of the copy",
    CopyCode.CHANGED_ON_THE_WAY: "holds other bytes than were sent to it for {request}",
    BytesCode.ALTERED: "the slot at offset {offset} has other bytes than were last written there",
    ReadCode.UNWRITTEN: "position {position} in {place} is read and was never written",
    ReadCode.OTHER_CONTENT: "position {position} in {place} holds the KV of other tokens "
    "(that prefix belongs to {known_from})",
    ReadCode.NOT_READ: "{pool} is not read, want [{want_start}, {want_end})",
    ReadCode.READ_IN_PART: "only [{start}, {end}) of {pool} is read, want [{want_start}, {want_end})",
    OutputCode.WRONG_TOKEN: "token {token} at position {position}, the reference has {want}",
    OutputCode.WRONG_LOGITS: (
        "the logits at position {position} of [{start}, {end}) are off by {difference}, tolerance {tolerance}"
    ),
    OutputCode.WRONG_TOKEN_SAMPLED: "token {token} is sampled at position {position}, the uncached model has {want}",
    OutputCode.WRONG_TOKEN_STREAMED: "token {token} is streamed at position {position}, the uncached model has {want}",
    OutputCode.NOT_COMPUTED: "{num_new} new tokens are streamed, but the valid results of the step have {num_computed}",
    OutputCode.COMPUTED_IN_PART: "a token is streamed after {num_computed} of its {num_known} tokens are computed",
    OutputCode.TOO_LONG: "{num_outputs} tokens are streamed, {asked} were requested",
    TwinCode.OTHER_TOKEN: "token {token} at position {position}, its twin has {other}",
    TwinCode.GOES_ON_AFTER_STOP: "{count} output tokens, its twin has {other}, and the shorter output ends with a stop",
    MatchCode.NOT_USABLE: "matched {length} tokens, which are not a usable cached prefix of whole pages",
    MatchCode.OTHER_PAGES: "matched the pages {pages}, the tree has {want}",
    DraftCode.TOO_MANY: "{count} drafts, at most {most} are allowed",
    DraftCode.BEYOND_ALLOCATION: "its drafts end at position {end}, but its pages at {allocated_len}",
    DraftCode.NOT_ALL_VERIFIED: "launch {launch} sampled {sampled} tokens for {drafts} drafts",
    DraftCode.WRONG_DRAFT_ACCEPTED: "{accepted} of the drafts {drafts} are accepted, the model sampled {sampled}",
}
