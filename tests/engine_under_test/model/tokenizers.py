"""A tokenizer for test checkpoints: one token a byte, so that characters outside ASCII need several tokens."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

FIRST_BYTE = 3  # after the special tokens of the tiny configs


def write_tokenizer(directory: Path) -> int:
    """Write tokenizer.json; returns the size of its vocabulary."""
    specials = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = specials | {letter: FIRST_BYTE + number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(directory / "tokenizer.json"))
    return len(vocabulary)
