"""Failures of commands: the exception, the exit codes, and the translation of librdkafka's errors.

A command raises `Failure` or lets an exception of the client through; `guarded` prints it as a line on stderr and sets the exit
code. A traceback is a bug of this program.

Exit codes: 0 success; 1 failure; 2 wrong usage; 130 Ctrl-C; 141 stdout was closed (broken pipe).
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
"""Errors of a write to stdout. (Errors of files opened by name carry the name.)"""

_MAY_BE_BYTES = frozenset({"values", "key", "header", "key_separator", "null", "template", "grep", "text"})
"""Parameters that become bytes of records. All others must be UTF-8 text."""

C = TypeVar("C", bound=Callable[..., Any])


class Failure(Exception):
    """What failed, and a hint what to do. `code` is Kafka's name of the error."""

    def __init__(self, message: str, hint: str | None = None, *, code: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        if hint is not None:
            self.add_note(hint)  # for tracebacks, in notebooks
        self.message = message
        self.hint = hint
        self.code = code
        self.exit_code = exit_code


def raise_together(failures: Sequence[Failure]) -> None:
    """Raise one Failure for several, with the first hint and code."""
    if failures:
        hint = next((failure.hint for failure in failures if failure.hint), None)
        raise Failure("; ".join(failure.message for failure in failures), hint, code=failures[0].code)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most similar to `name`, best first."""
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


# Hints by error name. Names that begin with an underscore are librdkafka's own.
_HINTS = {
    "TOPIC_ALREADY_EXISTS": "see it with `ottla topic describe`, or pass --if-not-exists",
    "INVALID_TOPIC_EXCEPTION": "a topic name has letters, digits, '.', '_' and '-', at most 249 of them",
    "INVALID_REPLICATION_FACTOR": "the replication factor cannot exceed the number of brokers",
    "INVALID_PARTITIONS": "the number of partitions can only grow",
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic (`ottla config set topic …`) and, for the client, "
    "`-X message.max.bytes=…`",
    "TOPIC_DELETION_DISABLED": "the broker runs with delete.topic.enable=false",
    **dict.fromkeys(
        (f"{kind}_AUTHORIZATION_FAILED" for kind in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")),
        "an administrator can allow it (`ottla acl add`); the broker's log says which operation was denied to whom",
    ),
    "_BAD_MSG": "the disk of the leader returned other bytes than were written: `ottla log dump --verify DIR` there finds them,"
    " `ottla log repair` replaces it from another replica",
    "_AUTHENTICATION": "check the sasl.* properties in --command-config",
    "_SSL": "check security.protocol and the ssl.* properties in --command-config",
    "_UNSUPPORTED_FEATURE": "the broker is too old for this request",
}


def code_name(error: Any) -> str:
    """Kafka's name of a `confluent_kafka.KafkaError`. librdkafka names some differently and lacks the newest."""
    from ottla.errors import ErrorCode

    try:
        return ErrorCode(error.code()).name
    except ValueError:
        return str(error.name())


def hint_for(name: str) -> str | None:
    """What to do about an error, by Kafka's name of it."""
    return _HINTS.get(name)


def explain(error: Any, subject: str | None = None) -> Failure:
    """A `confluent_kafka.KafkaError` as a Failure about `subject` ("topic orders")."""
    name = code_name(error)
    text = error.str().removeprefix("Unable to produce message: ").removeprefix("Local: ").removeprefix("Broker: ").strip()
    text = text[:1].lower() + text[1:] if text.partition(" ")[0][1:].islower() else text  # not of ZooKeeper
    text = text.rstrip(".")
    # Some messages of brokers already name the subject: "topic orders already exists".
    message = f"{subject}: {text}" if subject and f"{subject} " not in text else text
    return Failure(message, _HINTS.get(name), code=name)


def report(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        more = {"code": failure.code, "hint": failure.hint}
        document = {"message": failure.message, **{name: text for name, text in more.items() if text}}
        print(json.dumps({"error": document}, ensure_ascii=False), file=sys.stderr)
        return
    print(f"error: {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"  {failure.hint}", file=sys.stderr)


def _leave(code: int) -> NoReturn:
    import typer

    raise typer.Exit(code)


def guarded(command: C) -> C:
    """Decorator of every command: prints failures and sets the exit code. Uses the command's `json_output`."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            _check_text(kwargs)
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except Failure as failure:
            _flush_quietly()
            report(failure, as_json=_wants_json(kwargs))
            _leave(failure.exit_code)
        except (KeyboardInterrupt, SystemError) as interrupt:
            if isinstance(interrupt, SystemError) and not _is_interrupt(interrupt):
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
            report(Failure(f"cannot write the output: {failed.strerror}"), as_json=_wants_json(kwargs))
            _leave(EXIT_FAILED)
        except Exception as exception:
            error = _kafka_error(exception)
            if error is None:
                raise
            _flush_quietly()
            report(explain(error), as_json=_wants_json(kwargs))
            _leave(EXIT_FAILED)

    return run  # type: ignore[return-value]


def _is_interrupt(error: SystemError) -> bool:
    """confluent-kafka 2.16 turns a Ctrl-C during a call into a SystemError, with the KeyboardInterrupt or without it."""
    return isinstance(error.__cause__, KeyboardInterrupt) or "without setting an exception" in str(error)


def _wants_json(options: Mapping[str, Any]) -> bool:
    return bool(options.get("json_output")) or options.get("output") in ("json", "jsonl")


def is_text(word: str) -> bool:
    """Whether the word is valid UTF-8. A shell may pass any bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def _check_text(parameters: Mapping[str, Any]) -> None:
    """Failure if a name is not UTF-8: librdkafka would end the process."""
    for name, value in parameters.items():
        if name in _MAY_BE_BYTES:
            continue
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not is_text(word):
                raise Failure(f"{word!a} is not UTF-8 text", exit_code=EXIT_USAGE)


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Discard buffered output: writing it at exit would fail again, with a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _kafka_error(exception: Exception) -> Any:
    """The KafkaError inside an exception of the client. Does not import the client."""
    client = sys.modules.get("confluent_kafka")
    if client is not None and isinstance(exception, client.KafkaException) and exception.args:
        error = exception.args[0]
        return error if isinstance(error, client.KafkaError) else None
    return None
