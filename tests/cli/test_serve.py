"""`ottla serve`: starts that cannot be, and stops (F67)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.serve import Options, gather
from ottla.records import compiled
from ottla.testing import Broker, BrokerFailed
from tests.kit.ottla_command import TIMEOUT_S, Ottla, environment
from tests.kit.raw import RawConnection, batch, produce_frame, read_produced
from tests.kit.wait import until

ANY_PORT = ("--set", "listeners=PLAINTEXT://127.0.0.1:0")


def serve(*words: str, cwd: Path | None = None, **variables: Any) -> subprocess.CompletedProcess[str]:
    """`ottla serve` where it cannot go on."""
    return subprocess.run(
        Ottla.command("serve", *words),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=cwd,
        env=environment(**variables),
        check=False,
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = serve("--data-dir", str(tmp_path / "data"), "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ottla serve: ")]
    assert str(port) in line
    assert "port" in line
    with Broker(data_dir=tmp_path / "data") as broker:
        assert "Broker 1001 of cluster" in broker.log


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data"):
        done = serve("--data-dir", str(tmp_path / "data"), *ANY_PORT)
    assert done.returncode == 1
    assert done.stderr == f"ottla serve: the data directory {tmp_path / 'data'} is in use by another process\n"


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    done = serve("--data-dir", str(tmp_path / "data"), *ANY_PORT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ottla serve: ")
    assert "Traceback" not in done.stderr


def test_a_directory_without_permission(tmp_path: Path) -> None:
    """As root there is still sysfs, where nobody may make a directory."""
    (tmp_path / "data").mkdir(mode=0o500)
    data_dir = "/sys/ottla-data" if os.geteuid() == 0 else str(tmp_path / "data")
    done = serve("--data-dir", data_dir, *ANY_PORT)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"ottla serve: the data directory {data_dir} ")
    assert "permission" in line or "Read-only" in line


def test_bad_settings_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitons=3\nlog.segment.bytes=tiny\n")
    done = serve("--config", str(file), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert "num.partitions" in lines[0]
    assert "log.segment.bytes" in lines[1]
    assert list(tmp_path.iterdir()) == [file]


def test_a_zookeeper_that_is_away(tmp_path: Path) -> None:
    pytest.importorskip("kazoo")
    zookeeper = ("--set", "zookeeper.connect=127.0.0.1:1/x", "--set", "zookeeper.connection.timeout.ms=100")
    done = serve("--data-dir", str(tmp_path / "data"), *ANY_PORT, *zookeeper)
    assert done.returncode == 1
    waits, ends = done.stderr.splitlines()
    assert waits.endswith("Connecting to ZooKeeper at 127.0.0.1:1/x")
    assert ends.startswith("ottla serve: ZooKeeper cannot be reached at zookeeper.connect=127.0.0.1:1/x within 100 ms: ")


def test_bad_variables_and_options(tmp_path: Path) -> None:
    assert "OTTLA_NUM_PARTITONS" in serve(cwd=tmp_path, OTTLA_NUM_PARTITONS="3").stderr
    told = serve(cwd=tmp_path, OTTLA_NUM_PARTITIONS="none", OTTLA_LOG_ROLL_HOURS="3").stderr
    assert told.startswith("ottla serve: num.partitions=none "), told
    assert told.endswith(" (from the environment: OTTLA_NUM_PARTITIONS)\n"), told
    assert "environment" not in serve("--set", "num.partitions=none", cwd=tmp_path, OTTLA_NUM_PARTITIONS="3").stderr
    assert serve("--confg", "x", cwd=tmp_path).returncode == 2
    assert serve("--config", "nope", cwd=tmp_path).stderr == "ottla serve: cannot read nope: No such file or directory\n"


def test_variables_of_the_installation_are_no_settings() -> None:
    assert gather(Options(), {"OTTLA_COMPILE": "0", "OTTLA_NUM_PARTITIONS": "3"})["num.partitions"] == "3"


def test_help_is_the_friendly_one() -> None:
    done = serve("--help")
    assert done.returncode == 0
    assert "--data-dir" in done.stdout
    assert "OTTLA_LOG_RETENTION_MS" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        Ottla.command("serve", *ANY_PORT), cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if " ready in " in line:
                break
        assert f"data in {tmp_path / 'ottla-data'}, " in lines[-1]
        if compiled():
            assert lines[-1].endswith(", compiled\n")
        else:
            assert lines[-1].endswith(", interpreted\n")
            (warning,) = (line for line in lines if " WARNING " in line)
            assert warning.endswith(
                "The hot modules are not compiled: requests take several times the CPU. "
                "Install a C compiler, then run: make setup\n"
            )
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(TIMEOUT_S) == 0
    assert "stopped" in rest
    assert "Traceback" not in rest
    assert (tmp_path / "ottla-data" / ".kafka_cleanshutdown").exists()


def test_settings_reach_the_broker() -> None:
    with Broker({"num.partitions": 7}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "defaults")
        assert json.loads(ottla.ok("topic", "list", "--json"))[0]["partitions"] == 7


@pytest.mark.parametrize("module", ["confluent_kafka", "typer", "rich", "click"])
def test_serve_does_not_import_what_it_does_not_need(module: str, tmp_path: Path) -> None:
    """It would take longer to load than all of a broker."""
    code = (
        "import sys; from ottla.cli import main\n"
        "try: main(['serve', '--set', 'listeners=PLAINTEXT://256.0.0.1:1', '--data-dir', sys.argv[1]])\n"
        f"except SystemExit: print({module!r} in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    assert done.stdout == "False\n", done.stderr


def test_help_does_not_import_the_client() -> None:
    code = "import sys; from ottla.cli import main\ntry: main(['-h'])\nexcept SystemExit: print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert done.stdout.endswith("False\n")
    assert "produce" in done.stdout


def test_arguments_stand_once_in_a_line_of_usage() -> None:
    """Typer says by itself which may be left out, and which may be several."""
    usage = Ottla("").ok("produce", "--help").split("Usage: ")[1].splitlines()[0]
    assert "VALUE" in usage
    assert "…" not in usage
    assert "[[" not in usage


def test_completion_script_is_there() -> None:
    done = subprocess.run(
        Ottla.command(),
        capture_output=True,
        text=True,
        env=environment(_OTTLA_COMPLETE="source_bash"),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "_OTTLA_COMPLETE=complete_bash" in done.stdout


def test_failing_broker_shows_its_log() -> None:
    with pytest.raises(BrokerFailed, match=r"exit code 2.*\n.*unknown setting nope"):
        Broker({"nope": "1"}).start()


def test_the_configuration_of_a_kraft_controller_says_what_to_start(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text(
        "process.roles=controller\nnode.id=3000\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    )
    done = serve("--config", str(file), cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "process.roles=controller: this is the configuration of a KRaft controller, and Ottla has none" in done.stderr
    assert "start the brokers only" in done.stderr


def test_bad_options_of_the_log(tmp_path: Path) -> None:
    assert "ottla.log.format=xml is not allowed" in serve("--log-format", "xml", cwd=tmp_path).stderr
    assert (
        "ottla.log.level: LOUD is not allowed; allowed: LEVEL or LOGGER=LEVEL"
        in serve("--log-level", "LOUD", cwd=tmp_path).stderr
    )
    done = serve("--log-file", str(tmp_path / "none" / "log"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"ottla serve: cannot open the log file {tmp_path}/none/log: No such file or directory\n"


def test_sighup_opens_the_log_file_again_and_stops_nothing(tmp_path: Path) -> None:
    path, rotated = tmp_path / "broker.log", tmp_path / "broker.log.1"
    settings = {"ottla.log.file": str(path), "ottla.log.format": "json", "ottla.log.level": "INFO,ottla.broker.network=ERROR"}
    with Broker(settings) as broker:
        assert broker.process is not None
        path.rename(rotated)
        broker.process.send_signal(signal.SIGHUP)
        until(path.exists, "the file is opened again")
        broker.create_topic("orders")
        until(lambda: "created topic orders with 1 partitions" in path.read_text(), "a change is logged")
        with socket.create_connection(("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2]))) as hostile:
            hostile.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert hostile.recv(1) == b""
        broker.process.send_signal(signal.SIGHUP)
        until(lambda: path.read_text().count("Opened the log file") == 2, "SIGHUP again")
        assert broker.running
    lines = [json.loads(line) for line in (rotated.read_text() + path.read_text()).splitlines()]
    (ready,) = [line for line in lines if " ready in " in line["message"]]
    assert (ready["level"], ready["broker"]) == ("INFO", 1001)
    (created,) = [line for line in lines if "created topic" in line["message"]]
    assert (created["principal"], created["client"], created["broker"]) == ("User:ANONYMOUS", "127.0.0.1", 1001)
    assert not [line for line in lines if "Closed connection" in line["message"]], "its logger is at ERROR"
    assert lines[-1]["message"] == "Broker stopped"


@pytest.mark.parametrize("words", ["--help", "topic --help", "serve --help", "topic"])
def test_help_into_a_closed_pipe_ends_as_other_tools_do(words: str) -> None:
    shell = f"{shlex.join(Ottla.command(*words.split()))} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], stderr=subprocess.PIPE, timeout=TIMEOUT_S, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_line_of_a_closed_connection_names_address_port_and_client() -> None:
    with Broker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        broker.create_topic("orders")
        assert read_produced(connection.call(produce_frame("orders", 0, batch([b"x"])))).error == 0
        address, port = connection.socket.getsockname()
        connection.send(b"\xff\xff\xff\xff")
        until(lambda: "Closed connection" in broker.log, lambda: broker.log)
        assert f"Closed connection: {address}:{port} (client id raw) on PLAINTEXT: a request of -1 bytes" in broker.log
