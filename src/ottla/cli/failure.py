"""What went wrong, in the user's words.

Owns: the one exception of the command line, the exit codes, and the translation of librdkafka's errors. A command raises
`Failure` (or lets a client's exception through) and `guarded` turns it into a line on stderr and an exit code: no traceback
reaches a user unless the program itself is wrong.

Exit codes: 0 done; 1 it failed; 2 the command line itself was wrong; 130 Ctrl-C; 141 the reader of our output went away.
"""

from __future__ import annotations

import difflib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_OUTPUT_FAILED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write to a file may end in. (A file that was opened by name says it in its error.)"""

_MAY_BE_BYTES = frozenset({"values", "key", "header", "key_separator", "null", "template"})
"""Parameters of commands that stand for bytes of records. All others are names, and names are text."""

C = TypeVar("C", bound=Callable[..., Any])


class Failure(Exception):
    """A sentence that says what failed, and where there is one, a second that says what to do."""

    def __init__(self, message: str, hint: str | None = None, *, code: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.exit_code = exit_code


def raise_together(failures: Sequence[Failure]) -> None:
    """Several that failed in one command, as one; the first hint stands for all."""
    if failures:
        hint = next((failure.hint for failure in failures if failure.hint), None)
        raise Failure("; ".join(failure.message for failure in failures), hint, code=failures[0].code)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like the one typed, best first."""
    candidates = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in reversed(candidates)}
    found = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), count, cutoff=0.6)]
    for candidate in candidates:
        if len(found) >= count:
            break
        if len(name) >= 3 and name.lower() in candidate.lower() and candidate not in found:
            found.append(candidate)
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    found = nearest(name, known)
    return f"did you mean {' or '.join(found)}?" if found else None


# What to do about an error code, by Kafka's name of it; those of librdkafka itself begin with an underscore.
_HINTS = {
    "TOPIC_ALREADY_EXISTS": "see it with `ottla topic describe`, or pass --if-not-exists",
    "INVALID_TOPIC_EXCEPTION": "letters, digits, '.', '_' and '-' make a topic name, 249 characters at most",
    "INVALID_REPLICATION_FACTOR": "there must be as many brokers as replicas",
    "INVALID_PARTITIONS": "partitions can only be added",
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic (`ottla config set topic …`) and, for the client, "
    "`-X message.max.bytes=…`",
    "TOPIC_DELETION_DISABLED": "the broker runs with delete.topic.enable=false",
    "_AUTHENTICATION": "check the sasl.* properties in --command-config",
    "_SSL": "check security.protocol and the ssl.* properties in --command-config",
    "_UNSUPPORTED_FEATURE": "the broker is older than this request",
}


def code_name(error: Any) -> str:
    """Kafka's name of the code of a `confluent_kafka.KafkaError`: librdkafka has its own for some, and none for the newest."""
    from ottla.errors import ErrorCode

    try:
        return ErrorCode(error.code()).name
    except ValueError:
        return str(error.name())


def explain(error: Any, subject: str | None = None) -> Failure:
    """A `confluent_kafka.KafkaError` as a Failure; `subject` is what was being worked on ("topic orders")."""
    name = code_name(error)
    text = error.str().removeprefix("Unable to produce message: ").removeprefix("Local: ").removeprefix("Broker: ").strip()
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    text = text.rstrip(".")
    # Ottla's brokers name the subject themselves: the topic orders exists already.
    message = f"{subject}: {text}" if subject and f"{subject} " not in text else text
    return Failure(message, _HINTS.get(name), code=name)


def report(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {"message": failure.message}
        if failure.code:
            document["code"] = failure.code
        if failure.hint:
            document["hint"] = failure.hint
        print(json.dumps({"error": document}, ensure_ascii=False), file=sys.stderr)
        return
    print(f"error: {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"  {failure.hint}", file=sys.stderr)


def _leave(code: int) -> NoReturn:
    import typer

    raise typer.Exit(code)


def guarded(command: C) -> C:
    """Around every command: failures become a line and an exit code. Reads the command's `json_output` to choose the form."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            _check_text(kwargs)
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except Failure as failure:
            _flush_quietly()
            report(failure, as_json=bool(kwargs.get("json_output")))
            _leave(failure.exit_code)
        except (KeyboardInterrupt, SystemError) as interrupt:
            # confluent-kafka 2.16 loses a Ctrl-C that comes while a producer polls: this is what is left of it.
            if isinstance(interrupt, SystemError) and "without setting an exception" not in str(interrupt):
                raise
            _flush_quietly()
            _leave(EXIT_INTERRUPTED)
        except BrokenPipeError:
            _forget_output()
            _leave(EXIT_BROKEN_PIPE)
        except OSError as failed:
            if failed.errno not in _OUTPUT_FAILED or failed.filename is not None:
                raise
            _forget_output()
            report(Failure(f"cannot write the output: {failed.strerror}"), as_json=bool(kwargs.get("json_output")))
            _leave(EXIT_FAILED)
        except Exception as exception:
            error = _kafka_error(exception)
            if error is None:
                raise
            _flush_quietly()
            report(explain(error), as_json=bool(kwargs.get("json_output")))
            _leave(EXIT_FAILED)

    return run  # type: ignore[return-value]


def is_text(word: str) -> bool:
    """Whether it can be written in UTF-8: what a shell hands over may be any bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def _check_text(parameters: Mapping[str, Any]) -> None:
    """The client's library ends the whole process over a name that is no text."""
    for name, value in parameters.items():
        if name in _MAY_BE_BYTES:
            continue
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not is_text(word):
                raise Failure(f"{word!a} is no text in UTF-8", exit_code=EXIT_USAGE)


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """What is still buffered must not be written at exit: it would fail again, loudly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _kafka_error(exception: Exception) -> Any:
    """The KafkaError inside a client's exception, without importing the client where it was never used."""
    client = sys.modules.get("confluent_kafka")
    if client is not None and isinstance(exception, client.KafkaException) and exception.args:
        error = exception.args[0]
        return error if isinstance(error, client.KafkaError) else None
    return None
