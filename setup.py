"""Compile the hot modules with mypyc. Everything else about the package is in pyproject.toml.

Modules of hot messages are compiled from source that `ottla.wire.generate` writes to build/native.
If compilation fails, the sources run interpreted: slower, with the same results. OTTLA_COMPILE=0 skips compilation; with
OTTLA_COMPILE=1 a failure is an error, otherwise a warning.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
    "src/ottla/broker/network/request_observer.py",
    "src/ottla/broker/network/response_errors.py",
    "src/ottla/broker/handlers/fetch.py",
    "src/ottla/broker/handlers/heartbeat.py",
    "src/ottla/broker/handlers/offset_commit.py",
    "src/ottla/broker/handlers/produce.py",
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
    "src/ottla/security/quotas.py",
    "src/ottla/security/acl_index.py",
    "src/ottla/security/authorizer.py",
    "src/ottla/storage/epoch_cache.py",
    "src/ottla/storage/local_log.py",
    "src/ottla/storage/log.py",
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

COMPILE = os.environ.get("OTTLA_COMPILE", "")


def warn(reason: object) -> None:
    print(f"warning: ottla's hot modules are not compiled and will run interpreted: {reason}", file=sys.stderr)


class BuildAllOrNone(build_ext):
    """Removes what was built if one module fails: the others could not import it."""

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            if COMPILE == "1" or isinstance(error, KeyboardInterrupt):
                raise
            warn(error)
            for extension in self.extensions:  # type: ignore[has-type]
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []  # type: ignore[var-annotated]


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
        made: list[Any] = list(mypycify(checked, opt_level="3", debug_level="0", group_name="ottla"))
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
