"""The limits of a configuration and of a checkpoint, checked before memory is allocated; SECURITY.md lists them.

Each is several times what a served model of today needs.  A larger value is an error that names its place.
"""

# --- a configuration

MAX_UNITS = 1 << 19  # pages of all pools, those on the host included, and rows of the request table
MAX_POOL_TOKENS = 1 << 26  # of one pool
MAX_TABLE_ENTRIES = 1 << 23  # of the request table: its rows times the pages of the longest context
MAX_CONTEXT_LEN = 1 << 24  # tokens
MAX_RECORDED_OPS = 1 << 17
MAX_NUMBER = (1 << 31) - 1  # of each other setting, so that sums fit in 64 bits

# --- a checkpoint

MAX_JSON_BYTES = 4 << 20  # of config.json, generation_config.json, the index, and the header of a file of tensors
MAX_JSON_DEPTH = 16
MAX_SHARDS = 4096
MAX_LAYERS = 1024
MAX_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_CONV_LEN = 64  # taps of the convolution of a recurrent layer
MAX_STATE_SIZE = 1 << 24  # values of the state of a recurrent layer
MAX_SIZE = 1 << 24  # of any other dimension, and of each other count in config.json
MIN_FRACTION, MAX_FRACTION = 1e-15, 1e15  # of each number in config.json that is no count
MAX_TOKENIZER_BYTES = 64 << 20
TOKENIZER_MEMORY_BYTES = 256 << 20  # of the address space of the tokenizer's process; and beside them …
TOKENIZER_MEMORY_PER_BYTE = 64  # … for each byte of the file
TOKENIZER_CPU_SECONDS = 60  # of the tokenizer's process, for one answer
