"""A broker that goes away while a command works with it."""

from __future__ import annotations

import signal
import subprocess

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import TIMEOUT_S, Ottla


@pytest.mark.parametrize("words", [[], ["-g", "billing"]], ids=["alone", "member"])
def test_follow_says_that_it_waits_and_goes_on_after_a_restart(words: list[str]) -> None:
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "t")
        ottla.ok("produce", "t", "before")
        with subprocess.Popen(
            ottla.command("consume", "t", "-f", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ottla.environment
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                assert process.stdout.readline() == b"before\n"
                broker.kill()
                assert process.stderr.readline().decode() == f"waiting for {broker.bootstrap_servers} to come back…\n"
                broker.start()
                ottla.ok("produce", "t", "after")
                assert process.stdout.readline() == b"after\n"
            finally:
                process.kill()


def test_ctrl_c_ends_a_member_whose_commit_cannot_arrive() -> None:
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "t")
        ottla.ok("produce", "t", "one")
        with subprocess.Popen(
            ottla.command("consume", "t", "-f", "-g", "billing"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ottla.environment,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"one\n"
            broker.kill()
            assert b"waiting for" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 130


def test_producing_to_a_dead_broker_fails_in_time_and_says_why() -> None:
    with Broker() as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "t")
        with subprocess.Popen(
            ottla.command("produce", "t", "--timeout", "5"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ottla.environment,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert ottla.ok("consume", "t", "-f", "-n", "1") == "one\n"
            broker.kill()
            _, error = process.communicate(b"two\n", TIMEOUT_S)
            assert process.returncode == 1
    assert b"1 of 2 records were not written" in error
    assert b"check that the broker at" in error
