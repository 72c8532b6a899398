"""The limits of op-logs, traces and prompts, checked before memory is allocated; SECURITY.md lists them."""

MAX_OPLOG_BYTES = 32 << 20
MAX_CORPUS_BYTES = 128 << 20  # of all op-logs of a folder
MAX_ARCHIVE_BYTES = 128 << 20  # of a JSON file of an archive
MAX_STORY_BYTES = 1 << 20  # of a story, or of another text of an archive
MAX_TRACE_BYTES = 16 << 20  # of the part that is read
MAX_LINE_BYTES = 8 << 20
MAX_LINES = 1 << 18  # of an op-log
MAX_ENGINES = 16  # of an op-log
MAX_PROMPT_BYTES = 16 << 20  # of a file with a prompt
MAX_TOKENS = 1 << 20  # of all prompts of an op-log, and of the prompts that wait or run while a trace is served

MAX_STEPS_PER_OP = 8
MAX_STEPS = 1 << 20  # of all engines of a run
MAX_STRETCH = 4096  # tokens per choice of a recipe
MAX_CHOICES = 256  # of a recipe
MAX_SEQUENCES = 8  # of a request
MAX_NUMBER = 2**31 - 1  # of an argument, so that sums of them fit in 64 bits
MAX_NAMESPACE = (1 << 16) - 1  # the numbers above it are the namespaces of adapters
MAX_TOKEN_ID = 2**63 - 1
MAX_MS = 1 << 53  # of an arrival in a trace
