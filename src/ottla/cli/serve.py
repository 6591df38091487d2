"""`ottla serve`: runs a broker in this process until SIGTERM or Ctrl-C.

Imports nothing of the other commands, which would take longer to load than a broker.

Sources of settings, strongest first: `--set` and `--data-dir` in their order, the environment (`OTTLA_*`), `--config`, DEFAULTS
below, Kafka's defaults.

Exit codes: 0 stopped on request; 1 could not start, or failed; 2 wrong usage or settings.

SIGHUP opens the log file again, and reads TLS stores that are new. It never stops the broker.

`--console [HOST:PORT]` also starts the web console and `--registry [HOST:PORT]` a schema registry, as processes of their own that
end with this one.

`--supervisor-fd N` is for programs that start a broker, such as `ottla.testing`: N is one end of a socket pair. The broker writes
one JSON line when it is ready, and stops when the other end closes, also if that process is killed.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.cli.companion import Companion
    from ottla.cluster.settings import BrokerSettings
    from ottla.runtime.log_output import LogOutput

EXIT_FAILED = 1
EXIT_USAGE = 2

DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "./ottla-data"}
NOT_SETTINGS = ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_CACHE", "OTTLA_COMMAND_CONFIG", "OTTLA_COMPILE")
"""Variables with the prefix OTTLA_ that are not settings of a broker."""

GC_THRESHOLDS = (10_000, 20, 10)
"""gc.set_threshold: the number of new objects, and of collections, before each generation is collected."""

_OPTIONS = {
    "--config": "config",
    "-c": "config",
    "--data-dir": "data_dir",
    "-d": "data_dir",
    "--set": "set",
    "-s": "set",
    "--supervisor-fd": "supervisor_fd",
    "--console": "console",
    "--registry": "registry",
}
_SHORT_FOR = {
    "--metrics": "metrics.listener",
    "--log-file": "ottla.log.file",
    "--log-format": "ottla.log.format",
    "--log-level": "ottla.log.level",
}
"""Options that set one setting."""


_ADDRESS = re.compile(r"\S*:\d+")
_DEFAULT_ADDRESSES = {"console": "127.0.0.1:8080", "registry": "127.0.0.1:8081"}


class UsageError(Exception):
    """The command line is wrong."""


class Options:
    def __init__(self) -> None:
        self.config: str | None = None
        self.overrides: dict[str, str] = {}
        self.supervisor_fd: int | None = None
        self.console: tuple[str, int] | None = None
        """Where the console listens."""
        self.registry: tuple[str, int] | None = None
        """Where the schema registry listens."""


def parse_arguments(words: Sequence[str]) -> Options:
    options = Options()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = "set" if name in _SHORT_FOR else _OPTIONS.get(name)
        if option is None:
            raise UsageError(f"unknown option {word}" if word.startswith("-") else f"unexpected argument {word!r}")
        if option in ("console", "registry"):
            if not equals and rest and _ADDRESS.fullmatch(rest[0]):
                value = rest.pop(0)
            setattr(options, option, _address_beside(option, value))
            continue
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if name in _SHORT_FOR:
            value = f"{_SHORT_FOR[name]}={value}"
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
            raise UsageError(f"{name} {value!r} is not an open socket")
        else:
            options.supervisor_fd = int(value)
    return options


def _address_beside(command: str, text: str) -> tuple[str, int]:
    """Only of this machine: a server for others needs logins, for which the command of its own has options."""
    from ottla.cli.console.settings import is_loopback

    host, _, port = (text or _DEFAULT_ADDRESSES[command]).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--{command} {text!r} is not host:port")
    if not is_loopback(host):
        raise UsageError(f"--{command} {text}: for other machines run `ottla {command} --listen {text}` with a login")
    return host, int(port)


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except (OSError, OverflowError):
        return False


def _override(properties: dict[str, str], name: str, value: str) -> None:
    """Set one setting. A later `log.dir` wins over `log.dirs`, although Kafka prefers the latter."""
    if name == "log.dir":
        properties.pop("log.dirs", None)
    properties[name] = value


def gather(options: Options, environment: Mapping[str, str], strangers: list[str] | None = None) -> dict[str, str]:
    """All sources as one set of properties. OSError: the file cannot be read; ValueError: it or the environment is wrong.

    Adds variables with our prefix that are not settings to `strangers`.
    """
    from ottla.cluster.properties import parse_properties
    from ottla.cluster.settings import settings_from_environment

    properties: dict[str, str] = dict(DEFAULTS)
    if options.config is not None:
        with open(options.config, encoding="utf-8-sig") as file:  # some editors write a byte order mark
            try:
                text = file.read()
            except UnicodeDecodeError as error:
                raise ValueError(f"not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from None
        for name, value in parse_properties(text).items():
            _override(properties, name, value)
    for name, value in settings_from_environment(environment, NOT_SETTINGS, strangers).items():
        _override(properties, name, value)
    for name, value in options.overrides.items():
        _override(properties, name, value)
    return _without_references(properties, environment)


def _without_references(properties: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    if not properties.get("config.providers"):
        return properties
    from ottla.runtime.config_providers import resolved

    return resolved(properties, environment)


def since_process_start_ms() -> int:
    """Milliseconds since the start of this process, including the interpreter's own start on Linux."""
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
        return _fail(EXIT_USAGE, f"{error}; see `ottla serve --help`")
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
    try:
        log_output = _set_up_logging(settings, strangers)
    except OSError as error:
        return _fail(EXIT_FAILED, f"cannot open the log file {settings.str('ottla.log.file')}: {error.strerror}")
    return _run(settings, options, log_output)


def _with_origin(problem: str, options: Options) -> str:
    """The problem, and the environment variables that its settings come from."""
    from ottla.cluster.settings.environment import variable_of

    words = {word.rstrip(".:;,") for word in problem.replace("=", " ").split()}
    given = {name: variable_of(name) for name in words if name not in options.overrides}
    variables = sorted(variable for variable in given.values() if variable in os.environ)
    return f"{problem} (from the environment: {', '.join(variables)})" if variables else problem


def _fail(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"ottla serve: {problem}", file=sys.stderr)
    return code


def _set_up_logging(settings: BrokerSettings, strangers: Sequence[str]) -> LogOutput:
    """OSError if the log file cannot be opened."""
    import logging

    from ottla.broker.log_levels import set_log_levels
    from ottla.cluster.settings.log_level import parse_log_levels
    from ottla.runtime.log_output import LogOutput

    output = LogOutput(settings.optional_str("ottla.log.file") or None, settings.str("ottla.log.format"))
    logging.getLogger().addHandler(output)
    set_log_levels({"root": logging.INFO, **parse_log_levels(settings.list("ottla.log.level"))})
    if settings.broker_id() >= 0:
        output.name_broker(settings.broker_id())
    signal.signal(signal.SIGHUP, lambda *_: output.reopen())  # until the loop runs
    for variable in strangers:
        logging.getLogger("ottla").warning("Environment variable %s has no effect: it is not a setting", variable)
    return output


def _run(settings: BrokerSettings, options: Options, log_output: LogOutput) -> int:
    import logging

    from ottla.broker.app import StartupError, serve
    from ottla.metrics import Counters
    from ottla.records import compiled
    from ottla.runtime.loop import real_world, run

    # A broker makes hardly any reference cycles, so collect rarely.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()  # `ottla.cli.main` disabled it during imports

    companions: list[Companion] = []

    def on_ready(broker: Broker) -> None:
        gc.freeze()
        log_output.name_broker(broker.broker_id)
        if not compiled():
            _warn_interpreted()
        logging.getLogger("ottla").info(
            "Broker %d of cluster %s ready in %d ms at %s, data in %s, %s",
            broker.broker_id,
            broker.cluster_id,
            since_process_start_ms(),
            ", ".join(str(endpoint) for endpoint in broker.endpoints),
            ", ".join(os.path.abspath(data_dir.path) for data_dir in broker.partitions.data_dirs.online()),
            "compiled" if compiled() else "interpreted",
        )
        if broker.monitor is not None:
            logging.getLogger("ottla").info("Metrics at http://%s/metrics", broker.monitor.address)
        companions.extend(_start_beside(options, broker))
        if options.supervisor_fd is not None:
            _report_to_supervisor(options.supervisor_fd, broker)

    counters = Counters()
    try:
        world = real_world(counters, settings)
        failure = run(serve(settings, world, counters=counters, on_ready=on_ready, on_hangup=log_output.reopen))
    except StartupError as error:
        failure = str(error)
    finally:
        for companion in companions:
            companion.close()
    if failure is None:
        return 0
    if settings.optional_str("ottla.log.file"):
        logging.getLogger("ottla").error("Stopped: %s", failure)
    return _fail(EXIT_FAILED, failure)


def _start_beside(options: Options, broker: Broker) -> list[Companion]:
    """The console and the registry that are asked for; none of them if they could not log in."""
    if options.console is None and options.registry is None:
        return []
    open_to_all = [each for each in broker.endpoints if each.security_protocol == "PLAINTEXT"]
    if not open_to_all:
        import logging

        for command in ("console", "registry"):
            if getattr(options, command) is not None:
                logging.getLogger("ottla").warning(
                    "No %s: it has no login for the listeners of this broker. Run `ottla %s --command-config FILE` beside it",
                    command,
                    command,
                )
        return []
    servers = ",".join(f"{each.host}:{each.port}" for each in open_to_all)
    companions = []
    if options.console is not None:
        from ottla.cli.companion import address_text
        from ottla.cli.console.process import console_beside
        from ottla.cli.console.settings import ConsoleSettings

        host, port = options.console
        registry = {} if options.registry is None else {"url": f"http://{address_text(*options.registry)}"}
        companions.append(console_beside(ConsoleSettings(servers, host=host, port=port, registry=registry)))
    if options.registry is not None:
        from ottla.cli.companion import registry_beside

        companions.append(registry_beside(servers, *options.registry))
    return companions


def _warn_interpreted() -> None:
    """Tell that this install runs without compiled modules, and how to compile them."""
    import logging

    checkout = os.path.exists(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3, "setup.py"))
    command = "make setup" if checkout else f"OTTLA_COMPILE=1 pip install --force-reinstall --no-deps {_installed_from()}"
    logging.getLogger("ottla").warning(
        "The hot modules are not compiled: requests take several times the CPU. Install a C compiler, then run: %s", command
    )


def _installed_from() -> str:
    """What pip installs this again from: the directory or URL that it had, else an index."""
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote

    try:
        origin = distribution("ottla").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    if not origin:
        return "--no-binary ottla ottla"
    url = str(json.loads(origin)["url"])
    return shlex.quote(unquote(url.removeprefix("file://")) if url.startswith("file:///") else f"ottla @ {url}")


def _report_to_supervisor(fd: int, broker: Broker) -> None:
    """Report that the broker is ready, and stop it when the other end closes."""
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
            logging.getLogger("ottla").info("Stopping: the process that started this broker has ended")
            broker.ask_to_stop()

    try:
        channel.sendall(line.encode() + b"\n")
    except OSError:
        channel.close()
        broker.ask_to_stop()
        return
    loop.add_reader(channel, on_readable)
