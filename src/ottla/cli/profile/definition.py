"""A profile: the brokers of a cluster, the client properties to reach it, and how careful to be with it.

The value of a property may name environment variables as `${NAME}`; `$${` is a plain `${`. A property whose name ends in
`_command` holds a command: the first line of its output is the value of the property without the suffix. Commands run and
variables are read when a client is built, not when the file is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean

COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "white": 37}
"""Names and their ANSI codes."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_SECRET = re.compile(r"password|secret|jaas|\.pem$|keystore\.key|token", re.IGNORECASE)
_KEYS = ("bootstrap_servers", "properties", "password_command", "protected", "colour")
_COMMAND = "_command"
_COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As the file has them: `resolved` is for clients."""
    protected: bool = False
    colour: str | None = None

    def document(self) -> dict[str, Any]:
        """The profile without secrets."""
        return {
            "profile": self.name,
            "bootstrap_servers": self.bootstrap_servers,
            "protected": self.protected,
            "colour": self.colour,
            "properties": {name: "(hidden)" if is_secret(name, value) else value for name, value in self.properties.items()},
        }

    @property
    def runs_commands(self) -> bool:
        return any(name.endswith(_COMMAND) for name in self.properties)

    @property
    def holds_secrets(self) -> bool:
        return any(is_secret(name, value) for name, value in self.properties.items())

    def resolved(self) -> dict[str, str]:
        """The client properties, with variables replaced and commands run."""
        found = {}
        for name, value in self.properties.items():
            text = _VARIABLE.sub(lambda match, name=name: self._variable(match, name), value)  # type: ignore[misc]
            if name.endswith(_COMMAND):
                found[name.removesuffix(_COMMAND)] = self._output(name, text)
            else:
                found[name] = text
        return found

    def _variable(self, match: re.Match[str], name: str) -> str:
        variable = match.group(1)
        if variable is None:
            return "${"
        if variable not in os.environ:
            raise Failure(
                f"profile {self.name}: {name} needs the environment variable {variable}, which is not set",
                f"export {variable}=…, or change it with `ottla profile edit`",
                exit_code=EXIT_USAGE,
            )
        return os.environ[variable]

    def _output(self, name: str, command: str) -> str:
        """The first line that the command prints. It may ask its own questions at the terminal."""
        import shlex
        import subprocess

        try:
            words = shlex.split(command)
            done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_COMMAND_TIMEOUT_S, check=False, text=True)
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Failure(f"profile {self.name}: {name} cannot run: {why}", exit_code=EXIT_USAGE) from None
        line = done.stdout.partition("\n")[0].rstrip("\r")
        if done.returncode != 0 or not line:
            ended = f"ended with exit code {done.returncode}" if done.returncode else "printed nothing"
            raise Failure(f"profile {self.name}: the command of {name} {ended}", f"try it: {command}", exit_code=EXIT_USAGE)
        return line


def is_secret(name: str, value: str) -> bool:
    """Whether the property's value itself is a secret, not where to get it."""
    only_variables = _VARIABLE.sub("", value) == "" and "$${" not in value
    is_place = name.endswith((_COMMAND, ".location", ".command", ".url", ".class"))
    return bool(_SECRET.search(name)) and not is_place and not only_variables and bool(value)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Failure(f"{name!r} is not a name for a profile", "use letters, digits, - and _", exit_code=EXIT_USAGE)
    return name


def parse_profile(name: str, section: object, where: str) -> Profile:
    """The profile of a section `[profiles.name]`."""

    def wrong(text: str, hint: str | None = None) -> Failure:
        return Failure(f"{where}: profile {name}: {text}", hint or "mend it with `ottla profile edit`", exit_code=EXIT_USAGE)

    check_name(name)
    if not isinstance(section, dict):
        raise wrong(f"it is no section [profiles.{name}]")
    for key in section:
        if key not in _KEYS:
            raise wrong(f"unknown key {key}", did_you_mean(key, _KEYS) or f"the keys are {', '.join(_KEYS)}")
    servers = section.get("bootstrap_servers")
    if isinstance(servers, list) and all(isinstance(each, str) for each in servers):
        servers = ",".join(servers)
    if not isinstance(servers, str) or not servers.strip(" ,"):
        raise wrong('bootstrap_servers is missing: write "host:port,host:port"')
    protected, colour = section.get("protected", False), section.get("colour")
    if not isinstance(protected, bool):
        raise wrong("protected is neither true nor false")
    if colour is not None and colour not in COLOURS:
        raise wrong(f"colour {colour!r} is unknown", f"the colours are {', '.join(COLOURS)}")
    given = section.get("properties", {})
    if not isinstance(given, dict):
        raise wrong(f"properties is no section [profiles.{name}.properties]")
    properties = {}
    if "bootstrap.servers" in given:
        raise wrong("bootstrap.servers is no property of a profile: write bootstrap_servers")
    for key, value in given.items():
        if isinstance(value, dict):
            raise wrong(f"the property {key} is a section", f'quote names with dots: "{key}.{next(iter(value), "")}" = …')
        if not isinstance(value, str | int | float):
            raise wrong(f"the property {key} is neither text nor a number")
        properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
    command = section.get("password_command")
    if command is not None:
        if not isinstance(command, str):
            raise wrong("password_command is not text")
        properties[f"sasl.password{_COMMAND}"] = command
    return Profile(name, servers, properties, protected, colour)
