"""Every command that the documentation names exists and takes these arguments; the commands of the CLI run against a broker.

Pages: README, CONTRIBUTING, docs. Commands: lines of console blocks that begin with `$`, code spans, and docstrings of modules.
A page that changes is checked without a change here, except for `NEEDS_MORE`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit import ROOT
from tests.kit.documentation import blocks

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for folder in ("bench", "tests", "src", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
NEEDS_MORE = {
    "serve": "the fixture starts the broker; tests/cli/test_serve.py",
    "cluster": "tests/cluster/test_cluster_commands.py",
    "console": "it runs until it is stopped; tests/console",
    "exporter": "it runs until it is stopped; tests/cli/test_exporter.py",
    "mirror": "it needs another cluster; tests/cli/test_mirror.py",
    "registry": "it runs until it is stopped; tests/registry",
    "schema": "it needs a registry; tests/registry/test_schema_commands.py",
    "secure": "tests/cli/test_secure.py",
    "reassign": "tests/cluster/test_cluster_commands.py",
    "pipeline": "tests/test_documentation_walks.py, tests/pipelines/test_pipeline_cli.py",
}
"""Commands that one broker is not enough for, and where they run."""
FOLLOW_S = 5
QUOTED = r"'[^']*'|\"[^\"]*\""
"""In it, signs of the shell are not the shell's."""


def consoles(page: Path) -> Iterator[list[str]]:
    """The commands of each console block, in order, without comments and output."""
    for block in blocks(page):
        if block.language == "console":
            yield [re.sub(r"\s{2,}# .*| # .*", "", line[2:]).strip() for line in block.lines if line.startswith("$ ")]


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


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.exists() and any(consoles(page))], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """None is refused as wrong usage (exit code 2) and none ends with a traceback. Some fail, as the page says they do."""
    files = {"lines.txt": "k:v\n", "lines.tsv": "k\tv\n", "records.jsonl": '{"value": "v"}\n'}
    files |= {"client.properties": "security.protocol=PLAINTEXT\n"}
    files |= {"order.avsc": '{"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}'}
    files |= {"alice.secret": "secret\n", "token.hmac": "aG1hYw==\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ottla = tmp_path / "ottla"
    ottla.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    ottla.chmod(0o755)
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        environment = os.environ | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "EDITOR": "true",
        }
        (tmp_path / "ottla-data").symlink_to(str(broker.data_dir))
        for block in consoles(page):
            prepare(broker.bootstrap_servers)
            for line in block:
                if "ottla " not in line or any(re.search(rf"ottla {name}\b", line) for name in NEEDS_MORE):
                    continue
                if "jq" in line or "kcat" in line:
                    continue
                if "--schema" in line:
                    continue  # it needs a registry; tests/cli/test_schema_records.py
                # Rates and numbers of records of a benchmark are for people.
                line = re.sub(r"--throughput \d+", "--throughput 1000", re.sub(r"-n \d{4,}", "-n 500", line))
                code, said = run(line, tmp_path, environment)
                assert code != 2, f"{line}\n{said}"
                assert "Traceback" not in said, f"{line}\n{said}"


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


def run(line: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output. A command that follows a topic is interrupted after some seconds, as a user does it."""
    follows = bool(re.search(r" (-f|--follow|--wait)\b", line))
    with subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=FOLLOW_S if follows else 120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            said, _ = process.communicate(timeout=60)
            assert follows, f"{line} does not end\n{said}"
        return process.returncode, said
