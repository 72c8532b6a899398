"""Wheels of one small package, for tests that install without a network."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from types import MappingProxyType
from zipfile import ZipFile


def wheel(folder, name, version, requires="", files=MappingProxyType({})):
    """Write a wheel with one package, and further `files` in it."""
    info = f"{name}-{version}.dist-info"
    contents = {
        **{f"{name}/{file}": content for file, content in files.items()},
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},sha256={urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in contents.items()
    ]
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,\n"]))
