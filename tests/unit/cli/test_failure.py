"""Errors in the user's words, and the exit codes."""

from __future__ import annotations

import json

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

from ottla.cli.failure import Failure, did_you_mean, explain, guarded, nearest


def test_nearest_names_come_first() -> None:
    assert nearest("ordres", ["payments", "orders", "orders-eu"])[0] == "orders"
    assert nearest("Orders", ["orders"]) == ["orders"]
    assert nearest("eu", ["orders-eu"]) == []
    assert "orders-eu-west" in nearest("orders", ["orders-eu-west", "x"])
    assert did_you_mean("zzz", ["orders"]) is None


def test_a_kafka_error_becomes_a_sentence_with_advice() -> None:
    failure = explain(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists."), "topic a")
    assert failure.message == "topic a: topic 'a' already exists"
    assert failure.code == "TOPIC_ALREADY_EXISTS"
    assert failure.hint is not None


def test_a_subject_that_the_broker_names_is_not_said_twice() -> None:
    exists = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "the topic a exists already")
    assert explain(exists, "topic a").message == "the topic a exists already"
    assert explain(exists, "topic").message == "the topic a exists already"
    assert explain(exists, "topic b").message == "topic b: the topic a exists already"


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (17, "INVALID_TOPIC_EXCEPTION"),  # librdkafka: TOPIC_EXCEPTION
        (10, "MESSAGE_TOO_LARGE"),  # MSG_SIZE_TOO_LARGE
        (105, "TRANSACTIONAL_ID_NOT_FOUND"),  # ERR_105?
        (KafkaError._TRANSPORT, "_TRANSPORT"),
    ],
)
def test_codes_have_the_names_that_kafka_gives_them(number: int, name: str) -> None:
    failure = explain(KafkaError(number, "no"))
    assert failure.code == name
    assert (failure.hint is not None) == (number in (10, 17))


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (Failure("it failed", "do this"), 1, "error: it failed\n  do this\n"),
        (Failure("wrong", exit_code=2), 2, "error: wrong\n"),
        (KeyboardInterrupt(), 130, ""),
        (KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "Timed out")), 1, "error: timed out\n"),
    ],
)
def test_guarded_turns_exceptions_into_exit_codes(
    raised: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @guarded
    def command(json_output: bool = False) -> None:
        raise raised

    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == words


def test_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    @guarded
    def command(json_output: bool = False) -> None:
        raise Failure("it failed", "do this", code="X")

    with pytest.raises(typer.Exit):
        command(json_output=True)
    assert json.loads(capsys.readouterr().err) == {"error": {"message": "it failed", "code": "X", "hint": "do this"}}


def test_an_interrupted_call_of_the_library_is_an_interrupt() -> None:
    @guarded
    def command() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise SystemError("<method 'poll'> returned a result with an exception set") from interrupt

    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == 130


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemError])
def test_a_bug_stays_a_bug(kind: type[Exception]) -> None:
    @guarded
    def command() -> None:
        raise kind

    with pytest.raises(kind):
        command()


@pytest.mark.parametrize(
    ("told", "shown"),
    [("Broker: Topic is gone", "topic t: topic is gone"), ("ZooKeeper is away", "topic t: ZooKeeper is away")],
)
def test_a_message_of_a_broker_begins_as_a_part_of_a_sentence(told: str, shown: str) -> None:
    assert explain(KafkaError(KafkaError.REQUEST_TIMED_OUT, told), "topic t").message == shown
