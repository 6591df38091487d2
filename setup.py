"""Compile the hot modules with mypyc. Everything else about the package is in pyproject.toml.

Modules of hot messages are compiled from source that `ottla.wire.generate` writes to build/native.
The C source is compiled in parts, side by side. A build in place keeps their objects in the cache (`OTTLA_CACHE`, else
~/.cache/ottla), so that C source that was compiled before is not compiled again, in whatever checkout.
If compilation fails, the sources run interpreted: slower, with the same results. OTTLA_COMPILE=0 skips compilation; with
OTTLA_COMPILE=1 a failure is an error, otherwise a warning.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

HOT_MODULES = [
    "src/ottla/broker/authorization/guard.py",
    "src/ottla/broker/authorization/hot.py",
    "src/ottla/broker/coordinators/reply.py",
    "src/ottla/broker/coordinators/shard_commits.py",
    "src/ottla/broker/coordinators/shard_host.py",
    "src/ottla/broker/coordinators/shard_writer.py",
    "src/ottla/broker/network/connection.py",
    "src/ottla/broker/network/context.py",
    "src/ottla/broker/network/dispatch.py",
    "src/ottla/broker/network/measuring.py",
    "src/ottla/broker/network/metering.py",
    "src/ottla/broker/network/response_errors.py",
    "src/ottla/broker/handlers/fetch.py",
    "src/ottla/broker/handlers/heartbeat.py",
    "src/ottla/broker/handlers/offset_commit.py",
    "src/ottla/broker/handlers/produce.py",
    "src/ottla/broker/handlers/produce_replies.py",
    "src/ottla/broker/replicas/fetch_read.py",
    "src/ottla/broker/replicas/following.py",
    "src/ottla/broker/replicas/leading.py",
    "src/ottla/broker/replicas/partition.py",
    "src/ottla/broker/replicas/traffic.py",
    "src/ottla/broker/network/purgatory.py",
    "src/ottla/broker/network/request_memory.py",
    "src/ottla/broker/network/socket_server.py",
    "src/ottla/coordinator/group/classic_group.py",
    "src/ottla/coordinator/group/classic_group_protocol.py",
    "src/ottla/coordinator/group/committed_offset.py",
    "src/ottla/coordinator/group/offset_store.py",
    "src/ottla/coordinator/group/shard.py",
    "src/ottla/coordinator/shard.py",
    "src/ottla/metrics/counters.py",
    "src/ottla/metrics/histogram.py",
    "src/ottla/protocol/headers.py",
    "src/ottla/protocol/messages/fetch.py",
    "src/ottla/protocol/messages/heartbeat.py",
    "src/ottla/protocol/messages/offset_commit.py",
    "src/ottla/protocol/messages/produce.py",
    "src/ottla/records/batch.py",
    "src/ottla/records/clean.py",
    "src/ottla/records/clean_batches.py",
    "src/ottla/records/clean_transactions.py",
    "src/ottla/records/column_writer.py",
    "src/ottla/records/columns.py",
    "src/ottla/records/compression.py",
    "src/ottla/records/control.py",
    "src/ottla/records/partitioner.py",
    "src/ottla/records/record.py",
    "src/ottla/records/key_map.py",
    "src/ottla/records/offset_set.py",
    "src/ottla/records/own.py",
    "src/ottla/records/validate.py",
    "src/ottla/records/walk.py",
    "src/ottla/replication/fetch_session.py",
    "src/ottla/replication/leader.py",
    "src/ottla/runtime/clock.py",
    "src/ottla/runtime/file_sender.py",
    "src/ottla/runtime/files.py",
    "src/ottla/runtime/tls_transport.py",
    "src/ottla/schemas/avro/columns.py",
    "src/ottla/schemas/avro/reading.py",
    "src/ottla/security/quotas.py",
    "src/ottla/security/acl_index.py",
    "src/ottla/security/authorizer.py",
    "src/ottla/storage/epoch_cache.py",
    "src/ottla/storage/local_log.py",
    "src/ottla/storage/log.py",
    "src/ottla/storage/log_flushes.py",
    "src/ottla/storage/log_producers.py",
    "src/ottla/storage/offset_index.py",
    "src/ottla/storage/producer_state.py",
    "src/ottla/storage/reservation.py",
    "src/ottla/storage/results.py",
    "src/ottla/storage/scan.py",
    "src/ottla/storage/segment.py",
    "src/ottla/storage/segment_cache.py",
    "src/ottla/storage/segment_files.py",
    "src/ottla/storage/segment_indexes.py",
    "src/ottla/storage/time_index.py",
    "src/ottla/wire/buffer.py",
    "src/ottla/wire/codec.py",
    "src/ottla/wire/native.py",
    "src/ottla/wire/varint.py",
]

DIRECT_CALLS = ["-fvisibility=hidden", "-fno-plt"]
"""Python looks up one symbol only. Other symbols are hidden, so that calls between them need no linker table and may be inlined,
and calls to libpython take one jump less."""

PARTS = {"wire": ("wire", "protocol"), "storage": ("storage", "records"), "broker": ()}
"""Packages that are compiled as one, so that calls among them may be inlined. The last part has all others."""

OBJECTS_KEPT_MAX = 30
"""In the cache; three are one build."""

COMPILE = os.environ.get("OTTLA_COMPILE", "")


def warn(reason: object) -> None:
    print(f"warning: ottla's hot modules are not compiled and will run interpreted: {reason}", file=sys.stderr)


class Parts:
    """The C source of all modules in a few parts, each with what it includes."""

    def __init__(self, sources: list[str]) -> None:
        modules = [path for path in map(Path, sources) if path.name.startswith("__native_ottla___")]
        rest = [path for path in map(Path, sources) if path not in modules]
        self.included: dict[str, list[Path]] = {}
        for name, packages in PARTS.items():
            mine = [path for path in modules if not packages or path.name.split("___")[1] in packages]
            modules = [path for path in modules if path not in mine]
            files = mine if packages else [*rest, *mine]  # mypyc's runtime goes with the last part
            part = files[0].parent / f"part_{name}.c"
            part.write_text("".join(f'#include "{path.resolve()}"\n' for path in files))
            self.included[str(part)] = files


class BuildAllOrNone(build_ext):
    """Removes what was built if one module fails: the others could not import it."""

    def run(self) -> None:
        self.uses_cache = bool(self.inplace)  # before setuptools clears it
        try:
            super().run()
        except BaseException as error:
            if COMPILE == "1" or isinstance(error, KeyboardInterrupt):
                raise
            warn(error)
            for extension in self.extensions:  # type: ignore[has-type]
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []  # type: ignore[var-annotated]

    def build_extension(self, ext: Any) -> None:
        parts: Parts | None = getattr(ext, "parts", None)
        if parts is not None:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                ext.extra_objects = list(pool.map(partial(self.object_of, ext, parts), reversed(parts.included)))
            ext.depends = [*ext.depends, *ext.extra_objects]
            ext.sources = []
        super().build_extension(ext)

    def object_of(self, extension: Any, parts: Parts, part: str) -> str:
        """The object file of a part."""
        kept = self.cached(extension, parts.included[part]) if self.uses_cache else None
        if kept is not None and kept.exists():
            kept.touch()  # as a new one: link it, and drop it last
            return str(kept)
        made: str
        (made,) = self.compiler.compile(
            [part],
            output_dir=self.build_temp,
            include_dirs=extension.include_dirs,
            extra_postargs=extension.extra_compile_args,
        )
        if kept is not None:
            keep(Path(made), kept)
        return made

    def cached(self, extension: Any, sources: list[Path]) -> Path:
        """Where the cache keeps the object file made of these sources in this way."""
        command: list[str] = [*self.compiler.compiler_so, *extension.extra_compile_args]
        said = subprocess.run([command[0], "--version"], check=True, capture_output=True).stdout
        python = f"{sys.version} {sysconfig.get_config_var('EXT_SUFFIX')} {version('mypy')} {version('librt')}"
        hashed = hashlib.sha256(b"\0".join([said, python.encode(), *map(str.encode, command)]))
        for path in (*sources, *map(Path, extension.depends)):
            hashed.update(f"\0{path.name}\0".encode() + path.read_bytes())
        cache = Path(os.environ.get("OTTLA_CACHE") or "~/.cache/ottla").expanduser()
        return cache / "objects" / f"{hashed.hexdigest()}.o"


def keep(made: Path, kept: Path) -> None:
    """Copy an object file into the cache, and drop those unused for longest. The build goes on without a cache."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        copy = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, copy)
        copy.replace(kept)
        for old in sorted(kept.parent.glob("*.o"), key=lambda path: -path.stat().st_mtime)[OBJECTS_KEPT_MAX:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        print(f"setup: compiled modules are not cached: {error}", file=sys.stderr)


def extensions() -> list[Any]:
    if not {"egg_info", "dist_info", "sdist"}.isdisjoint(sys.argv):
        return []  # only metadata is wanted
    if COMPILE == "0":
        warn("OTTLA_COMPILE=0")
        return []
    try:
        from mypyc.build import mypycify

        generated = Path("build/native")
        shutil.rmtree(generated, ignore_errors=True)
        subprocess.run([sys.executable, "src/ottla/wire/generate.py", str(generated)], check=True)
        paths = [str(native) if (native := generated / Path(path).relative_to("src")).exists() else path for path in HOT_MODULES]
        os.environ["MYPYPATH"] = f"src{os.pathsep}{generated}"  # so that mypy names their modules alike
        # Only the types of what they import are needed: packages that they run with may be missing while this one is built.
        checked = ["--follow-imports=silent", *paths]
        made: list[Any] = list(mypycify(checked, opt_level="3", debug_level="0", group_name="ottla", multi_file=True))
        (all_modules,) = (extension for extension in made if extension.name == "ottla__mypyc")
        all_modules.parts = Parts(all_modules.sources)
        if sys.platform == "linux":
            for extension in made:
                extension.extra_compile_args = [*extension.extra_compile_args, *DIRECT_CALLS]
        return made
    except BaseException as error:
        if COMPILE == "1" or isinstance(error, KeyboardInterrupt):
            raise
        warn(error)
        return []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNone})
