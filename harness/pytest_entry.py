"""The entry point of the pytest plugin: names the plugin's module, so that it is loaded once, even if `-p` names it."""

pytest_plugins = ("swarden.harness.pytest_plugin",)
