"""The process that parses and compares schemas: `python -m ottla.registry.worker` (SR11).

Frames on stdin and stdout: four bytes of length, then a pickle. A request is the name of a function of `schema_work` and its
arguments; the answer is `(DONE, result)`, `(INVALID, reason, is_too_large)` or `(FAILED, text)`. It ends with its stdin, and by
SIGPROF if one request takes more than its share of CPU time. That limit is the same on a busy machine, and after a pause.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from typing import Any, BinaryIO, Final

DONE, INVALID, FAILED = "done", "invalid", "failed"
FUNCTIONS: Final = ("describe", "describe_all", "check", "formatted")
_MEMORY_BYTES_MAX: Final = 2 << 30
CPU_LIMIT_S: Final = 5.0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the registry, which ends this process
    _limit_memory()
    import ottla.registry.schema_work  # noqa: F401  (not in the time of the first request)

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write into the answers
    while (frame := _read(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        data = pickle.dumps(_answer(*pickle.loads(frame)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(data).to_bytes(4, "big") + data)
        answers.flush()


def _answer(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    from ottla.registry import schema_work
    from ottla.schemas.limits import SchemaTooLarge
    from ottla.schemas.model import InvalidSchema

    try:
        assert name in FUNCTIONS
        return DONE, getattr(schema_work, name)(*arguments)
    except InvalidSchema as error:
        return INVALID, str(error), isinstance(error, SchemaTooLarge)
    except RecursionError:
        return INVALID, "the schema nests too deep", False
    except MemoryError:
        return INVALID, "the schema takes too much memory", True
    except Exception:
        return FAILED, traceback.format_exc()


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 4 else None


def _limit_memory() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES_MAX, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ValueError, OSError):
        pass  # a system without this limit


if __name__ == "__main__":
    main()
