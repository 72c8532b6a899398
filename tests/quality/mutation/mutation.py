"""A mutation: one small change of one source file, named by its diff."""

import hashlib
import sys
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec

ID_LEN = 10  # hex digits


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of the module at `path`: `place` is the innermost definition, `diff` has one line of context.

    `source` is the whole text of the module after the change.
    """

    path: str
    place: str
    operator: str
    line: int
    diff: str
    source: str = field(repr=False)

    @property
    def id(self) -> str:
        """A hash that does not depend on line numbers, so it stays the same if the code moves."""
        return hashlib.blake2b(f"{self.path}\n{self.place}\n{self.diff}".encode()).hexdigest()[:ID_LEN]

    @property
    def module(self) -> str:
        return f"swarden.{self.path.removesuffix('.py').replace('/', '.')}"

    @property
    def changed(self) -> tuple[str, ...]:
        """The removed and the added lines, without their indentation."""
        return tuple(line[0] + " " + line[1:].strip() for line in self.diff.splitlines() if line[0] in "-+")

    def plant(self) -> None:
        """Load the changed module, in a process that has not imported it yet; the file is not changed."""
        spec = find_spec(self.module)
        assert spec is not None, f"{self.module}: no such module"
        assert spec.origin is not None, f"{self.module}: has no file"
        sys.modules[self.module] = module = module_from_spec(spec)
        exec(compile(self.source, spec.origin, "exec", dont_inherit=True), module.__dict__)
        package, _, name = self.module.rpartition(".")
        setattr(import_module(package), name, module)
