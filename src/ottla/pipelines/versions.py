"""The code of a pipeline's versions, kept beside its checkpoints in `.versions/VERSION`.

Settings are not kept: they hold passwords, and the cluster and the storage are the same for all versions.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import number_of
from ottla.pipelines.spark_jvm import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.pipelines")

FOLDER = ".versions"
_NOTE = "version.json"


@dataclass(frozen=True)
class Code:
    """The pipeline's file and the user's modules that it imported, by their paths in its directory."""

    main: str
    files: Mapping[str, str]

    def fingerprint(self) -> str:
        """Of the syntax trees: comments, blank lines and the layout do not count."""
        return _digest(f"{name}\0{_tree(text)}" for name, text in sorted(self.files.items()))

    def fingerprint_of(self, flow: str) -> str:
        """The same without the functions of other flows."""
        texts = {**self.files}
        main = texts.pop(self.main)
        others = _digest(f"{name}\0{_tree(text)}" for name, text in sorted(texts.items()))
        try:
            tree = ast.parse(main)
        except SyntaxError:
            return _digest([others, main])
        kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and _is_flow(node) and node.name != flow)]
        return _digest([others, *(ast.dump(node) for node in kept)])


def _is_flow(node: ast.FunctionDef) -> bool:
    """Whether the function is decorated with `@p.flow(…)`, and by no other name than its own."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            called = decorator.func
            name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            if name == "flow":
                return not any(word.arg == "name" for word in decorator.keywords)
    return False


def _tree(text: str) -> str:
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return text


def _digest(parts: Iterator[str] | list[str]) -> str:
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()[:16]


def code_of(file: Path) -> Code:
    """The code of a pipeline's file that is loaded."""
    folder = file.resolve().parent
    files = {file.name: file.read_text(encoding="utf-8")}
    for path in modules_below(folder):
        files.setdefault(str(path.relative_to(folder)), path.read_text(encoding="utf-8"))
    return Code(file.name, files)


def modules_below(folder: Path) -> list[Path]:
    """The files of imported modules in the directory of a pipeline."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not file or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if path.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(path.parts):
            found.add(path)
    return sorted(found)


@contextmanager
def isolated(folder: Path) -> Iterator[None]:
    """Forget the modules of this directory afterwards: another version has modules of the same names.

    Spark then pickles their functions by value, so workers need not import them.
    """
    below = folder.resolve()
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(below) and "site-packages" not in file:
                del sys.modules[name]


def following(version: str) -> str:
    """A name for the version after this one. Two attempts of an upgrade get different names."""
    return f"{number_of(version) + 1}-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class Version:
    name: str
    code: Code
    previous: str | None
    """The version that was live before."""
    since_ms: int
    note: str = ""
    """"rollback to 1", for example."""
    generations: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return number_of(self.name)


class Versions:
    """The kept versions of a pipeline."""

    def __init__(self, spark: SparkSession, storage: str) -> None:
        self.location = f"{storage.rstrip('/')}/{FOLDER}"
        self._files = FileSystem(spark, self.location)

    def folder(self, name: str) -> str:
        return f"{self.location}/{name}"

    def names(self) -> list[str]:
        return sorted(self._files.names(self.location), key=lambda name: (number_of(name), name))

    def read(self, name: str) -> Version | None:
        text = self._files.read_text(f"{self.folder(name)}/{_NOTE}")
        if text is None:
            return None
        try:
            found = json.loads(text)
            code = Code(found["main"], found["files"])
            return Version(name, code, found["previous"], found["since_ms"], found["note"], found["generations"])
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{self.folder(name)}/{_NOTE} is damaged: {error}") from None

    def keep(self, version: Version) -> None:
        """Write the files of a version and a note, which is written last and holds them all."""
        folder = self.folder(version.name)
        for name, text in version.code.files.items():
            self._files.write_text(f"{folder}/{name}", text)
        document = {
            "version": version.number,
            "previous": version.previous,
            "since_ms": version.since_ms,
            "note": version.note,
            "generations": dict(version.generations),
            "main": version.code.main,
            "files": dict(version.code.files),
        }
        self._files.write_text(f"{folder}/{_NOTE}", json.dumps(document, indent=1))

    def check_running(self, name: str, code: Code) -> bool:
        """Whether the code of a driver that starts is to be kept. PipelineError if it is that of an older version."""
        kept = self.read(name)
        mine = code.fingerprint()
        if kept is not None and kept.code.fingerprint() == mine:
            return False
        for other in self.names():
            version = self.read(other) if other != name else None
            if version is not None and version.number < number_of(name) and version.code.fingerprint() == mine:
                raise PipelineError(
                    f"{code.main} is the code of version {version.number}, but version {number_of(name)} of the pipeline is live",
                    hint=f"copy its files back from {self.folder(name)}, or make this code live with `ottla pipeline upgrade`",
                )
        if kept is not None:
            logger.warning(
                "%s is not the code of version %d, which is live, and uses its checkpoints; `ottla pipeline upgrade` compares",
                code.main,
                number_of(name),
            )
        return True

    def keep_running(self, name: str, code: Code) -> None:
        """Keep the code that a driver of the live version runs."""
        kept = self.read(name) or Version(name, code, None, int(time.time() * 1000))
        self.keep(replace(kept, code=code))

    def put(self, version: Version, folder: Path) -> Path:
        """Write the files of a version into a local directory. Returns the path of the pipeline's file."""
        for name, text in version.code.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder / version.code.main
