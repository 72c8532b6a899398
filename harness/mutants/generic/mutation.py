"""A mutation: one small change of one source file, named by its diff."""

import hashlib
import sys
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec

ID_LEN = 10  # hex digits


@dataclass(frozen=True, slots=True)
class Mutation:
    """What was changed in the module at `path`: `place` is the innermost definition, `diff` has a line around it.

    `source` is the module's whole text after the change.
    """

    path: str
    place: str
    operator: str
    line: int
    diff: str
    source: str = field(repr=False)

    @property
    def id(self) -> str:
        """The same however far the code has moved."""
        return hashlib.blake2b(f"{self.path}\n{self.place}\n{self.diff}".encode()).hexdigest()[:ID_LEN]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def part(self) -> str:
        """The part of the engine that it is in."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def changed(self) -> tuple[str, ...]:
        """The lines that went and those that came, without their indentation."""
        return tuple(line[0] + " " + line[1:].strip() for line in self.diff.splitlines() if line[0] in "-+")

    def plant(self) -> None:
        """Load the module as changed, in a process where nobody has imported it; the file stays as it is."""
        spec = find_spec(self.module)
        assert spec is not None, f"{self.module}: no such module"
        assert spec.origin is not None, f"{self.module}: has no file"
        sys.modules[self.module] = module = module_from_spec(spec)
        exec(compile(self.source, spec.origin, "exec", dont_inherit=True), module.__dict__)
        package, _, name = self.module.rpartition(".")
        setattr(import_module(package), name, module)
