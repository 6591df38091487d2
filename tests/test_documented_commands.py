"""Every command that the documentation names exists and takes these arguments; the commands of the CLI run against a broker.

Pages: README, CONTRIBUTING, docs. Commands: lines of console blocks that begin with `$`, code spans, and docstrings of modules.
A page that changes is checked without a change here, except for `NOT_RUN`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from ottla.testing.registry import Registry
from tests.kit import ROOT
from tests.kit.certificates import Authority
from tests.kit.documentation import blocks
from tests.kit.peers import KAFKA_4, free_ports, java_command, tool_class
from tests.kit.wait import until

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for folder in ("bench", "tests", "src", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
NOT_RUN = {
    r"^(make|pip|\.venv/bin/pip|\.venv/bin/pre-commit) |pytest|^python -m bench": "they install, test or measure",
    r"^ottla pipeline ": "it needs Spark: tests/test_documentation_walks.py, tests/pipelines/test_pipeline_cli.py",
    r"^ottla serve --config \./cluster/": "three secured brokers: tests/cli/test_secure.py",
    r"^export OTTLA_COMMAND_CONFIG": "the cluster of this page is secured: tests/cli/test_secure.py",
    r"listener\.name\.ssl": "it needs a secured listener: tests/cluster/test_secured_brokers.py",
    r"--auth scram": "it needs a secured cluster: tests/registry/test_access.py",
    r"^prometheus ": "tests/cluster/test_prometheus.py",
    r"^python -m ottla\.sim|^git grep": "they need the source tree: tests/sim, tests/unit/test_cases.py",
}
"""Commands of pages that do not run here, and where they run."""
CLUSTER = r"\bottla (cluster status|reassign)\b"
"""Commands that run on three brokers."""
SERVICE = r"\bottla (serve|console|registry|exporter|cluster up|mirror (?!.* -e$))"
STARTED = r"ready in|Console of|Schema registry at|Metrics of|brokers up in|mirror"
"""What a command says that runs until it is stopped, once it has started."""
KAFKA_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-client-metrics.sh": "org.apache.kafka.tools.ClientMetricsCommand",
}
FOLLOW_S = 5
QUOTED = r"'[^']*'|\"[^\"]*\""
"""In it, signs of the shell are not the shell's."""


def consoles(page: Path) -> Iterator[list[str]]:
    """The commands of each console block, in order, without comments and output."""
    for block in blocks(page):
        if block.language == "console":
            text = "\n".join(block.lines).replace("\\\n", " ")
            yield [re.sub(r"\s{2,}# .*| # .*", "", line[2:]).strip() for line in text.splitlines() if line.startswith("$ ")]


def console_lines() -> list[str]:
    return [line for page in PAGES if page.exists() for block in consoles(page) for line in block]


def spans() -> list[str]:
    """Code spans of pages, and all that looks like `python -m ...` or `make ...` in docstrings."""
    found = [span for page in PAGES if page.exists() for span in re.findall(r"`([^`\n]+)`", page.read_text())]
    for path in SOURCES:
        found += re.findall(r"python -m [\w.]+", path.read_text())
    return found


def ottla_commands() -> list[str]:
    """What follows `ottla` in console lines, up to a pipe, a redirection or the next command."""
    found = set()
    for line in console_lines():
        quoted = re.findall(QUOTED, line)
        for part in re.split(r"\||&&", re.sub(QUOTED, "\0", line)):
            words = re.sub(r"^(\w+=\S+ )+", "", part.strip())
            own, quoted = quoted[: words.count("\0")], quoted[words.count("\0") :]
            if words.startswith("ottla "):
                command = re.split(r" [<>] ?\S", words)[0].removeprefix("ottla ").strip()
                for text in own:
                    command = command.replace("\0", text, 1)
                found.add(command)
    return sorted(found)


def modules() -> list[str]:
    named = {match for text in (*spans(), *console_lines()) for match in re.findall(r"python -m ([a-z_]\w*(?:\.\w+)*)", text)}
    return sorted(name for name in named if name.split(".")[0] in ("bench", "tests", "ottla", "examples"))


def make_targets() -> list[str]:
    named = set()
    for text in (*spans(), *console_lines()):
        found = re.match(r"make( +[a-z-]+)?(( +[A-Z_]+=[\w.-]+)*)$", text.strip())
        if found:
            named.add(text.strip())
    return sorted(named)


def test_the_pages_are_read() -> None:
    assert len(ottla_commands()) > 50
    assert "bench.pipelines" in modules()
    assert "make test" in make_targets()


@pytest.mark.parametrize("name", modules())
def test_a_module_that_is_named_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=lambda page: page.stem)
def test_a_path_that_is_named_exists(page: Path) -> None:
    """`src/ottla/cli/app.py` in a code span; words in capitals (NAME) are placeholders, bench/out is made by a run."""
    named = re.findall(r"`((?:src|tests|bench|docs|examples|packaging|tools)/[\w./-]+)`", page.read_text())
    named = [name for name in named if not name.startswith("bench/out/")]
    assert [name for name in named if not re.search(r"[A-Z]{3}", name.split("FINDINGS")[0]) and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "bench").glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported_and_explains_itself(path: Path) -> None:
    is_command = '__name__ == "__main__"' in path.read_text() and path.stem != "__main__"
    name = "bench" if path.stem in ("__init__", "__main__") else f"bench.{path.stem}"
    if not is_command and name != "bench":
        assert importlib.import_module(name)
        return
    done = subprocess.run([sys.executable, "-m", name, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command", make_targets())
def test_a_make_target_exists(command: str) -> None:
    words = [*command.split(), "-n", "PYTHON=true", "-o", ".venv/.installed", "-o", ".venv/.compiled"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "No rule to make target" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ottla_commands())
def test_the_cli_takes_the_arguments(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from ottla.cli.app import app

    monkeypatch.chdir(tmp_path)
    for name in ("plan.json", "back.json", "offsets.csv", "orders.py", "server.properties"):
        (tmp_path / name).touch()
    current = typer.main.get_command(app)
    words = shlex.split(command)
    name = "ottla"
    while True:
        context = current.make_context(name, list(words), resilient_parsing=False)
        if not hasattr(current, "resolve_command"):
            return
        name, following, words = current.resolve_command(context, [*context._protected_args, *context.args])
        assert following is not None, f"no command {name}"
        current = following


class Stage:
    """A reader's directory and clusters: one broker with metrics, and when they are asked for a registry, a console, a second
    broker, three brokers. Addresses of the pages are replaced by theirs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        metrics, self._console = free_ports(2)
        settings: dict[str, str | int] = {"group.initial.rebalance.delay.ms": 0, "metrics.listener": f"127.0.0.1:{metrics}"}
        self.broker = stack.enter_context(Broker(settings))
        self._addresses: dict[str, str | Callable[[object], str]] = {
            r"(http://)?(127\.0\.0\.1|broker-1):9404": f"http://127.0.0.1:{metrics}",
            r"backup:9092": lambda _: self.other.bootstrap_servers,
            r"(broker-1:9092,broker-2:9092|[\w.-]+:909[23])": self.broker.bootstrap_servers,
            r"(http://)?127\.0\.0\.1:8081": lambda _: self.registry,
            r"localhost:8080": lambda _: self.console,
            r"/(var/lib/ottla|var/log/ottla|var/lib/kafka|disk-2/kafka|tmp/cluster)": str(folder),
        }
        files = {
            "lines.txt": "k:v\n",
            "lines.tsv": "k\tv\n",
            "records.jsonl": '{"value": "v"}\n',
            "values.jsonl": '{"customer": "Ana"}\n',
            "order.avsc": '{"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}',
            "server.properties": "num.partitions=2\n",
            "client.properties": "security.protocol=PLAINTEXT\n",
            "console.properties": "security.protocol=PLAINTEXT\n",
            "tokens": f"admin {'a' * 32}\n",
            "alice.secret": "secret\n",
            "token.hmac": "aG1hYw==\n",
        }
        for name, text in files.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text)
        issued = Authority().issue("console")
        (folder / "console.pem").write_text(issued.certificate_pem)
        (folder / "console.key").write_text(issued.key_pem())
        (folder / "ottla-data").symlink_to(str(self.broker.data_dir))
        programs = folder / "bin"
        programs.mkdir()
        commands = {name: shlex.join(java_command(KAFKA_4, tool_class(KAFKA_4, tool))) for name, tool in KAFKA_TOOLS.items()}
        for name, command in {"ottla": f"{sys.executable} -P -m ottla", **commands}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP_SERVERS": self.broker.bootstrap_servers,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "EDITOR": "true",
        }

    @cached_property
    def other(self) -> Broker:
        return self._stack.enter_context(Broker())

    @cached_property
    def registry(self) -> str:
        return self._stack.enter_context(Registry(self.broker)).url

    @cached_property
    def console(self) -> str:
        listen = f"127.0.0.1:{self._console}"
        self._serve(["ottla", "console", "--listen", listen])
        return listen

    @cached_property
    def three(self) -> str:
        """The addresses of three brokers with the topics of `prepare`."""
        words = ["ottla", "cluster", "up", "--port", "0", "--zookeeper-port", "0", "-d", str(self.folder / "three")]
        said = self._serve(words)
        servers = re.findall(r"bootstrap servers: (\S+)", said)[0]
        prepare(servers)
        return str(servers)

    def _serve(self, words: list[str]) -> str:
        log = self.folder / f"{words[1]}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=out, stderr=out)
        self._stack.callback(_end, process)
        until(lambda: re.search(STARTED, log.read_text()), lambda: log.read_text(), timeout_s=60)
        return log.read_text()

    def run(self, line: str) -> None:
        """AssertionError if the line is wrong usage (exit code 2), ends with a traceback, or fails without saying why."""
        for place, address in self._addresses.items():
            line = re.sub(place, address, line)
        self._add_profiles(line)
        environment = self.environment
        if re.search(CLUSTER, line):
            environment = environment | {"OTTLA_BOOTSTRAP_SERVERS": self.three}
        if "--schema" in line or "ottla schema" in line:
            environment = environment | {"OTTLA_REGISTRY": self.registry}
        if service := re.search(SERVICE, line):
            line, more = self._on_free_ports(line, service[1])
            environment = environment | more
        # Rates and numbers of records of a benchmark are for people.
        line = re.sub(r"--throughput \d+", "--throughput 1000", re.sub(r"-n \d{4,}", "-n 500", line))
        code, said = run(line, self.folder, environment, is_service=service is not None)
        assert "Traceback" not in said, f"{line}\n{said}"
        if code == 2:
            assert re.search("unknown setting|is not a whole number", said), f"{line}\n{said}"  # as the page says
        elif code not in (0, 130, -signal.SIGINT) and "| grep" not in line:  # grep may find nothing
            assert re.search(r"error|warning|0 found", said), f"{line} ends with {code}\n{said}"

    def _add_profiles(self, line: str) -> None:
        """A page may have made them, or expects them."""
        file = self.folder / "config" / "ottla" / "config.toml"
        for name in re.findall(r"-profile (\w+)", line):
            known = file.read_text() if file.exists() else ""
            if f"[profiles.{name}]" not in known:
                servers = self.other.bootstrap_servers if name == "backup" else self.broker.bootstrap_servers
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch(mode=0o600)
                file.write_text(f'{known}\n[profiles.{name}]\nbootstrap_servers = "{servers}"\n')

    def _on_free_ports(self, line: str, service: str) -> tuple[str, dict[str, str]]:
        line = re.sub(r"(--listen|--console|--metrics) (http://)?[\d.]+:\d+", r"\1 127.0.0.1:0", line)
        if service == "serve":
            line = re.sub(r"--registry http://[\d.]+:\d+", "--registry 127.0.0.1:0", line)
            line = re.sub(r"(--console|--registry)(?= |$)(?! 127)", r"\1 127.0.0.1:0", line)
            data = {} if "--data-dir" in line else {"OTTLA_LOG_DIRS": str(self.folder / "served")}
            return line, {"OTTLA_LISTENERS": "PLAINTEXT://127.0.0.1:0", **data}
        if service == "cluster up":
            return f"{re.sub(' --port [0-9]+', '', line)} --port 0 --zookeeper-port 0", {}
        if service.startswith("mirror") or "--listen" in line:
            return line, {}
        return f"{line} --listen 127.0.0.1:0", {}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait(120)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.exists() and any(consoles(page))], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """None is refused as wrong usage and none ends with a traceback. Some fail, as the page says they do."""
    with ExitStack() as stack:
        stage = Stage(tmp_path, stack)
        for block in consoles(page):
            prepare(stage.broker.bootstrap_servers)
            for line in block:
                if not any(re.search(pattern, line) for pattern in NOT_RUN):
                    stage.run(line)


def prepare(servers: str) -> None:
    """What a block may expect: topics `orders` and `payments` with records, group `billing` with committed offsets."""
    admin = AdminClient({"bootstrap.servers": servers})
    missing = {"orders", "payments"} - admin.list_topics(timeout=60).topics.keys()
    for created in admin.create_topics([NewTopic(name, 6, 1) for name in missing]).values() if missing else ():
        created.result(60)
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(3):
        producer.produce("orders", b"some", partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", partition, 1) for partition in range(3)], asynchronous=False)
    consumer.close()


def run(line: str, folder: Path, environment: dict[str, str], *, is_service: bool = False) -> tuple[int, str]:
    """Exit code and output. A command that follows a topic is interrupted after some seconds, a service once it has started."""
    follows = bool(re.search(r" (-f|--follow|--wait)\b", line))
    log = folder / "said.log"
    named = re.search(r"--log-file (\S+)", line)
    logs = [log, Path(named[1])] if named else [log]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        if is_service:
            until(
                lambda: process.poll() is not None or re.search(STARTED, said(logs)),
                lambda: f"{line}: {said(logs)}",
                timeout_s=60,
            )
        else:
            process.wait(FOLLOW_S if follows else 120)
    except subprocess.TimeoutExpired:
        assert follows, f"{line} does not end\n{said(logs)}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
    return process.returncode, said(logs)


def said(logs: Iterable[Path]) -> str:
    return "".join(log.read_text(errors="replace") for log in logs if log.exists())
