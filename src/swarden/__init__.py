"""swarden: finds KV-memory bugs in serving engines.

The packages below this root are links to the folders at the top of the repository; in a wheel they are folders.
"""
