"""What the warm process of some_processes has imported; collections of garbage in its children leave it alone."""

import gc
from importlib import import_module

for name in ("jinja2", "rich.progress", "typer._adapters", "typer.rich_utils"):
    import_module(name)
for name in ("engines.own.target", "engines.server.target", "search.workers"):
    import_module(f"swarden.harness.{name}")
gc.freeze()
