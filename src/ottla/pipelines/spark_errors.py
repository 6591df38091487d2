"""What Spark's error texts mean. The only module that takes decisions from them.

Spark reports what happens in its workers and in Java as text alone: exception types and error codes do not survive.
"""

from __future__ import annotations

import re

from ottla.client.blocking import BrokerAway
from ottla.errors import ErrorCode
from ottla.pipelines.definitions import Flow, Sink
from ottla.pipelines.failure import PipelineError, Place

_RETRY_BATCH = "ottla: this batch must run again"
_WORKER_LOST = (
    "exited unexpectedly",
    "ExecutorLostFailure",
    "Python worker failed to connect back",
    "FetchFailed",
    "Connection reset",
)
_SLOW_WORKER = "Python worker failed to connect back"
_INCOMPATIBLE_CLASS = (
    "NoSuchMethodError",
    "NoSuchFieldError",
    "AbstractMethodError",
    "IncompatibleClassChangeError",
    "NoClassDefFoundError",
)
_STATE_DOES_NOT_FIT = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
)
_APPEND_NEEDS_WATERMARK = (
    "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION",
    "Append output mode not supported when there are streaming aggregations",
)
_HINTS = {
    "Queries with streaming sources must be executed": (
        "a flow only describes its result: leave out show(), count(), collect() and the like; `ottla pipeline preview` shows rows"
    ),
    "Sorting is not supported on streaming": "a topic has no order of rows: sort where you read it",
}
_LENGTH_MAX = 600


def retry_batch(reason: object) -> RuntimeError:
    """The error by which a task asks the driver to run the whole micro-batch again."""
    return RuntimeError(f"{_RETRY_BATCH}: {reason}")


def retry_reason(error: BaseException) -> str | None:
    """The reason that a task gave to `retry_batch`; None if `error` is another one."""
    _, found, reason = str(error).partition(f"{_RETRY_BATCH}: ")
    return reason.split("\n", 1)[0] if found else None


def worker_lost(error: BaseException) -> str | None:
    """The words in which Spark says that a worker or executor died under a task; None if it does not say so."""
    text = str(error)
    return next((words for words in _WORKER_LOST if words in text), None)


def is_batch_too_large(error: BaseException) -> bool:
    """Whether a topic refused a record batch for its size."""
    return any(f"{code.name}: " in str(error) for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))


def is_slow_worker(error: BaseException) -> bool:
    """Whether a Python worker did not connect within Spark's ten seconds, for which Spark has no setting."""
    return _SLOW_WORKER in str(error)


def is_incompatible_class(error: BaseException) -> bool:
    """Whether Java met a class of a jar that was compiled for another release."""
    return any(name in str(error) for name in _INCOMPATIBLE_CLASS)


def is_missing_jdbc_driver(error: BaseException) -> bool:
    return "driver" in first_line(error).lower()


def first_line(error: BaseException) -> str:
    """Spark's message without Java's stack trace and the query plan."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].removeprefix(": ")]
    return (lines[0] if lines else type(error).__name__)[:_LENGTH_MAX]


def named_first_line(error: BaseException) -> str:
    """`first_line`, with the type of the error unless Spark raised it about the query."""
    name = type(error).__name__
    return first_line(error) if name in ("AnalysisException", "ParseException") else f"{name}: {first_line(error)}"


def hint_of(error: BaseException, flow: str) -> str | None:
    """What to do about an error of Spark's that many meet and that does not say it."""
    text = str(error)
    if any(name in text for name in _STATE_DOES_NOT_FIT):
        return (
            "the query does not fit the state in its checkpoint: undo the change, rebuild the state by `ottla pipeline "
            f"upgrade`, or start again with `ottla pipeline reset … --flow {flow}`"
        )
    if "DATA_SOURCE_NOT_FOUND" in text and "ottla" in text:
        return "Spark looks for it with a Python that has no Ottla (PYSPARK_PYTHON), or that did not answer in time: run it again"
    if any(name in text for name in _APPEND_NEEDS_WATERMARK):
        return 'add withWatermark(…) before the aggregation, or write each change with output_mode="update"'
    return next((hint for words, hint in _HINTS.items() if words in text), None)


def query_failure(failure: BaseException, flow: Flow) -> PipelineError:
    """The error that ended the query of a flow, in one line, at the user's line if the user's code raised it."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    place = _place_in(text, flow.place.file) or flow.place
    # An exception of format("ottla"), wrapped by Spark.
    ours = [match for line in lines if (match := re.match(r"(?:[A-Za-z.]*Exception: )*ottla\.[\w.]+\.(\w+): (.+)", line))]
    if ours:
        hint = "no data is lost: run the pipeline again" if ours[-1][1] == BrokerAway.__name__ else None
        return PipelineError(f"flow {flow.name!r}: {ours[-1][2][:_LENGTH_MAX]}", place, hint=hint)
    what = _raised_in_worker(text) or next(
        (line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)), "".join(lines[:1])
    )
    target = flow.to
    if isinstance(target, Sink) and what.startswith(refused := f"RuntimeError: topic {target.topic}: "):
        # The broker refused what `producing` sent: the sink is the place, not the user's code.
        why = what.removeprefix(refused)[:_LENGTH_MAX]
        return PipelineError(f"flow {flow.name!r} (topic {target.topic!r}): {why}", target.place)
    said = what.removeprefix("pyspark.errors.exceptions.captured.")[:_LENGTH_MAX]
    return PipelineError(f"flow {flow.name!r}: {said}", place, hint=hint_of(failure, flow.name))


def _place_in(text: str, file: str) -> Place | None:
    """The last line of `file` in the Python stack traces of `text`."""
    lines = [int(line) for name, line in re.findall(r'File "([^"]+)", line (\d+)', text) if name == file]
    return Place(file, lines[-1]) if lines else None


def _raised_in_worker(text: str) -> str | None:
    """The exception that a Python worker raised: the first line after its stack trace. None if it was not in a worker."""
    _, marker, worker = text.partition("\n=== Streaming Query ===")[0].rpartition("thrown from the Python worker")
    stack = worker.rpartition("Traceback (most recent call last):")[2].splitlines() if marker else []
    return next((line for line in stack if line and not line[0].isspace()), None)
