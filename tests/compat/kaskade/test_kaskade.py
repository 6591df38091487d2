"""kaskade 5.1.0, a terminal interface of others: topics, their settings and groups, records; a topic made and deleted in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.kit.suites import environment
from tests.kit.wait import until

pytestmark = pytest.mark.slow

VERSION = "5.1.0"
ROWS, COLUMNS = 50, 160
SAVE, DELETE = "\x13", "\x04"
_CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\].*?(\x07|\x1b\\)|[PX^_].*?\x1b\\|[@-_])", re.DOTALL)


class Screen:
    """What a program has written to its terminal, and the keys that it is sent."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._written = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._terminal, 65536):
                self._written += piece
        except OSError:
            pass  # the other end is closed

    @property
    def text(self) -> str:
        """Without control sequences and spaces, which stand also within words, around the cursor."""
        return "".join(_CONTROL.sub("", self._written.decode(errors="replace")).split())

    def press(self, keys: str) -> None:
        """From here on only what is written afterwards is seen."""
        self._written.clear()
        os.write(self._terminal, keys.encode())

    def shows(self, *words: str) -> None:
        until(lambda: all(word.replace(" ", "") in self.text for word in words), lambda: f"{words} in {self.text[-2000:]}")


@contextmanager
def kaskade(home: Path, *words: str) -> Iterator[Screen]:
    program = environment(f"kaskade-{VERSION}", [f"kaskade=={VERSION}"]).parent / "kaskade"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = os.environ | {"TERM": "xterm-256color", "HOME": str(home)}
    with subprocess.Popen([program, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        try:
            yield Screen(ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


@pytest.fixture
def with_records(bootstrap: str, new_topic: Callable[..., str]) -> Iterator[str]:
    """A topic with three records, and a group of its name that has read them and has a member."""
    topic = new_topic(partitions=3, **{"retention.ms": 123456789})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(topic, f'{{"number": {number}}}', f"key-{number}", partition=number, headers=[("origin", b"test")])
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[Message] = []
    until(lambda: len(read) == 3, meanwhile=lambda: read.extend(consumer.consume(3, 1)))
    consumer.commit(asynchronous=False)
    yield topic
    consumer.close()


def test_topics_settings_and_groups_are_shown(bootstrap: str, with_records: str, tmp_path: Path) -> None:
    with kaskade(tmp_path, "admin", "-b", bootstrap) as screen:
        choose(screen, with_records)
        screen.press("d")
        screen.shows("Topic Details", "Partitions [3]", "Groups [1]", "Group Members [1]")
        screen.press("l")
        screen.shows("retention.ms", "123456789")


def test_records_are_shown(bootstrap: str, with_records: str, tmp_path: Path) -> None:
    words = ("consumer", "-b", bootstrap, "-t", with_records, "-k", "string", "-v", "json", "--earliest")
    with kaskade(tmp_path, *words) as screen:
        screen.shows("key-0", "key-1", "key-2", "number")


def test_a_topic_is_created_and_deleted(bootstrap: str, topic: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = f"{topic}-made"
    with kaskade(tmp_path, "admin", "-b", bootstrap) as screen:
        screen.shows("Updated")
        screen.press("n")
        screen.shows("Create Topic")
        enter(screen, made, SAVE)
        until(lambda: made in admin.list_topics(timeout=60).topics, "the topic is there")
        choose(screen, made)
        screen.press(DELETE)
        screen.shows("Delete Topic")
        enter(screen, made, "\r")
        until(lambda: made not in admin.list_topics(timeout=60).topics, "the topic is gone")


def choose(screen: Screen, topic: str) -> None:
    """Show only this topic, and wait until its records and groups are read."""
    screen.shows("Updated")
    screen.press("/")
    screen.shows("Filter Topics")
    enter(screen, topic, "\r")
    screen.shows(f"[*{topic}*] [1]", "Updated")


def enter(screen: Screen, text: str, then: str) -> None:
    screen.press(text)
    screen.shows(text)
    screen.press(then)
