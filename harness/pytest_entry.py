"""The entry point of the pytest plugin: pytest may load the plugin by its module's name, too, and loads it once."""

pytest_plugins = ("harness.pytest_plugin",)
