"""`ottla serve`: a broker in this process, until SIGTERM or Ctrl-C.

Owns: its few options, the layers of settings, the log's form, and the words of a start that failed. Never imports what the other
commands need, which would take longer to load than all of a broker.

Layers, strongest first: `--set` and `--data-dir` in the order given, the environment (`OTTLA_*`), `--config`, the defaults here
(127.0.0.1:9092, ./ottla-data), Kafka's defaults.

Exit codes: 0 stopped as asked; 1 could not start or broke; 2 the command line or the settings are wrong.

`--supervisor-fd N` is for programs that start a broker (`ottla.testing` does): N is one end of a socket pair. One JSON line
goes out when the broker serves; when the other end closes, and be it because its process was killed, the broker stops.
"""

from __future__ import annotations

import gc
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.cluster.settings import BrokerSettings

EXIT_FAILED = 1
EXIT_USAGE = 2

DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "./ottla-data"}
NOT_SETTINGS = ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_CACHE", "OTTLA_COMPILE")
"""Variables with the prefix of settings that belong to other commands, and to the installation."""

GC_THRESHOLDS = (10_000, 20, 10)
"""Of the cyclic collector: new objects before it looks at them, and how often it looks at older ones."""

_OPTIONS = {
    "--config": "config",
    "-c": "config",
    "--data-dir": "data_dir",
    "-d": "data_dir",
    "--set": "set",
    "-s": "set",
    "--supervisor-fd": "supervisor_fd",
}


class UsageError(Exception):
    """A command line that cannot be followed."""


class Options:
    def __init__(self) -> None:
        self.config: str | None = None
        self.overrides: dict[str, str] = {}
        self.supervisor_fd: int | None = None


def parse_arguments(words: Sequence[str]) -> Options:
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = _OPTIONS.get(name)
        if option is None:
            raise UsageError(f"unknown option {word}" if word.startswith("-") else f"unexpected argument {word!r}")
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if option == "config":
            options.config = value
        elif option == "data_dir":
            _override(options.overrides, "log.dirs", value)
        elif option == "set":
            key, equals, setting = value.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"--set {value!r} is not key=value")
            _override(options.overrides, key.strip(), setting.strip())
        elif not value.isdecimal() or not _is_socket(int(value)):
            raise UsageError(f"{name} {value!r} is no open socket")
        else:
            options.supervisor_fd = int(value)
    return options


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except (OSError, OverflowError):
        return False


def _override(properties: dict[str, str], name: str, value: str) -> None:
    """Lay one setting over others. `log.dir` over `log.dirs` must win too, although Kafka would prefer the latter."""
    if name == "log.dir":
        properties.pop("log.dirs", None)
    properties[name] = value


def gather(options: Options, environment: Mapping[str, str], strangers: list[str] | None = None) -> dict[str, str]:
    """All layers as one `server.properties`. OSError: the file cannot be read; ValueError: it or the environment is wrong.

    Variables that look like ours and are none are added to `strangers`.
    """
    from ottla.cluster.properties import parse_properties
    from ottla.cluster.settings import settings_from_environment

    properties: dict[str, str] = dict(DEFAULTS)
    if options.config is not None:
        with open(options.config, encoding="utf-8-sig") as file:  # some editors mark the beginning
            try:
                text = file.read()
            except UnicodeDecodeError as error:
                raise ValueError(f"this is no text in UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from None
        for name, value in parse_properties(text).items():
            _override(properties, name, value)
    for name, value in settings_from_environment(environment, NOT_SETTINGS, strangers).items():
        _override(properties, name, value)
    for name, value in options.overrides.items():
        _override(properties, name, value)
    return properties


def since_process_start_ms() -> int:
    """Milliseconds since this process began, the interpreter's own start included, where the system tells."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started_ticks = int(file.read().rpartition(b")")[2].split()[19])
        started_s = started_ticks / os.sysconf("SC_CLK_TCK")
        return max(0, round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000))
    except (OSError, ValueError, IndexError, AttributeError):
        return round(time.process_time() * 1000)


def main(words: Sequence[str]) -> int:
    try:
        options = parse_arguments(words)
    except UsageError as error:
        return _fail(EXIT_USAGE, f"{error}; `ottla serve --help` lists the options")
    from ottla.cluster.settings import BrokerSettings, SettingsError

    strangers: list[str] = []
    try:
        settings = BrokerSettings.parse(gather(options, os.environ, strangers))
    except SettingsError as error:
        return _fail(EXIT_USAGE, *(_with_origin(problem, options) for problem in error.problems))
    except OSError as error:
        return _fail(EXIT_USAGE, f"cannot read {options.config}: {error.strerror}")
    except ValueError as error:
        return _fail(EXIT_USAGE, f"{options.config}: {error}")
    _set_up_logging(strangers)
    return _run(settings, options)


def _with_origin(problem: str, options: Options) -> str:
    """A problem, and which variables its settings come from: nobody looks for those in the file."""
    from ottla.cluster.settings.environment import variable_of

    words = {word.rstrip(".:;,") for word in problem.replace("=", " ").split()}
    given = {name: variable_of(name) for name in words if name not in options.overrides}
    variables = sorted(variable for variable in given.values() if variable in os.environ)
    return f"{problem} (from the environment: {', '.join(variables)})" if variables else problem


def _fail(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"ottla serve: {problem}", file=sys.stderr)
    return code


def _set_up_logging(strangers: Sequence[str]) -> None:
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    for variable in strangers:
        logging.getLogger("ottla").warning("%s has no effect: the variable is no setting", variable)


def _run(settings: BrokerSettings, options: Options) -> int:
    import logging

    from ottla.broker.app import StartupError, serve
    from ottla.metrics import Counters
    from ottla.records import compiled
    from ottla.runtime.loop import real_world, run

    # Hardly anything here is garbage that counting references would not find: looking for it after every few hundred objects
    # costs more than it ever gives back, and what a start makes lives as long as the process.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()  # it was off while modules were loaded (`ottla.cli.main`)

    def on_ready(broker: Broker) -> None:
        gc.freeze()
        if not compiled():
            _warn_interpreted()
        logging.getLogger("ottla").info(
            "ready in %d ms: broker %d of cluster %s at %s, data in %s, %s",
            since_process_start_ms(),
            broker.broker_id,
            broker.cluster_id,
            ", ".join(str(endpoint) for endpoint in broker.endpoints),
            ", ".join(os.path.abspath(data_dir.path) for data_dir in broker.partitions.online_dirs()),
            "compiled" if compiled() else "interpreted",
        )
        if options.supervisor_fd is not None:
            _report_to_supervisor(options.supervisor_fd, broker)

    counters = Counters()
    try:
        failure = run(serve(settings, real_world(counters, settings), counters=counters, on_ready=on_ready))
    except StartupError as error:
        return _fail(EXIT_FAILED, str(error))
    return 0 if failure is None else _fail(EXIT_FAILED, failure)


def _warn_interpreted() -> None:
    """Tell that this install runs without compiled modules, and how to compile them."""
    import logging

    checkout = os.path.exists(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "setup.py"))
    command = "make setup" if checkout else "OTTLA_COMPILE=1 pip install --force-reinstall --no-deps --no-binary ottla ottla"
    logging.getLogger("ottla").warning(
        "The hot modules are not compiled: requests take several times the CPU. Install a C compiler, then run: %s", command
    )


def _report_to_supervisor(fd: int, broker: Broker) -> None:
    """Say that the broker serves, and stop it when the other end closes."""
    import asyncio
    import json
    import logging
    import socket
    from dataclasses import replace

    channel = socket.socket(fileno=fd)
    bound = [replace(endpoint, port=broker.bound_ports[endpoint.listener]) for endpoint in broker.settings.listeners().bind]
    line = json.dumps({"bootstrap_servers": broker.bootstrap_servers, "listeners": [str(endpoint) for endpoint in bound]})
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        try:
            gone = not channel.recv(4096)
        except OSError:
            gone = True
        if gone:
            loop.remove_reader(channel)
            channel.close()
            logging.getLogger("ottla").info("stopping: the process that started this broker is gone")
            broker.ask_to_stop()

    try:
        channel.sendall(line.encode() + b"\n")
    except OSError:
        channel.close()
        broker.ask_to_stop()
        return
    loop.add_reader(channel, on_readable)
