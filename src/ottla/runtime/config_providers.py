"""Replaces references such as `${file:/path:key}` in the settings of this process by what they stand for (KIP-297).

Owns Kafka's three providers: a key of a properties file, a file of a directory, a variable of the environment. They are named in
`config.providers` and read once, at the start. No config that a client sends gets here (CV04).

A reference to a provider that is not configured stays as it is, as in Kafka. One that finds nothing is an error: in Kafka the
text of the reference would become the password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ottla.cluster.properties import parse_properties

_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_PREFIX: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."

Lookup = Callable[[str, str], str]
"""(path, key) -> value. ValueError: there is none."""


def resolved(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties without references. ValueError names a setting and its reference, never a value."""
    providers = _providers(properties, environment)
    if not providers:
        return dict(properties)
    return {
        name: text if name.startswith(_PREFIX) else _REFERENCE.sub(partial(_value, name, providers), text)
        for name, text in properties.items()
    }


def _providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Lookup]:
    providers: dict[str, Lookup] = {}
    for name in filter(None, (each.strip() for each in properties.get(_PREFIX, "").split(","))):
        setting = f"{_PREFIX}.{name}.class"
        java_class = properties.get(setting, "").strip()
        parameters = partial(_parameter, properties, f"{_PREFIX}.{name}.param.")
        match java_class.removeprefix(_PACKAGE):
            case "FileConfigProvider":
                providers[name] = partial(_key_of_file, _allowed_paths(parameters("allowed.paths")))
            case "DirectoryConfigProvider":
                providers[name] = partial(_file_of_directory, _allowed_paths(parameters("allowed.paths")))
            case "EnvVarConfigProvider":
                providers[name] = partial(_variable, _pattern(setting, parameters("allowlist.pattern")), environment)
            case "":
                raise ValueError(f"{_PREFIX} names {name}, and {setting} is missing")
            case _:
                kinds = "FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider"
                raise ValueError(f"{setting}={java_class} is not supported; allowed: Kafka's own {kinds}")
    return providers


def _parameter(properties: Mapping[str, str], prefix: str, name: str) -> str:
    return properties.get(prefix + name, "").strip()


def _value(setting: str, providers: Mapping[str, Lookup], reference: re.Match[str]) -> str:
    provider, path, key = reference.groups()
    lookup = providers.get(provider)
    if lookup is None:
        return reference[0]
    try:
        return lookup(path or "", key)
    except OSError as error:
        raise ValueError(f"{setting}: {reference[0]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{setting}: {reference[0]}: {error}") from None


def _allowed_paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(each.strip()).resolve() for each in text.split(",") if each.strip())


def _check_allowed(path: str, allowed: tuple[Path, ...]) -> Path:
    found = Path(path).resolve()
    if allowed and not any(found.is_relative_to(each) for each in allowed):
        raise ValueError("the path is not in allowed.paths of its provider")
    return found


def _key_of_file(allowed: tuple[Path, ...], path: str, key: str) -> str:
    values = _parsed(_check_allowed(path, allowed))
    if key not in values:
        raise ValueError("the file has no such key")
    return values[key]


def _parsed(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except ValueError:
        # The words of the error may have a part of a secret.
        raise ValueError("the file is not a properties file") from None


def _file_of_directory(allowed: tuple[Path, ...], path: str, key: str) -> str:
    directory = _check_allowed(path, allowed)
    file = (directory / key).resolve()
    if file.parent != directory and not (directory / key).is_symlink():
        raise ValueError("the key names no file of the directory")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8 text") from None


def _pattern(setting: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text or ".*", re.DOTALL)
    except re.error as error:
        raise ValueError(f"{setting.removesuffix('class')}param.allowlist.pattern={text} is no pattern: {error}") from None


def _variable(allowed: re.Pattern[str], environment: Mapping[str, str], path: str, key: str) -> str:
    if path:
        raise ValueError("a variable of the environment has no path")
    if key not in environment or not allowed.fullmatch(key):
        raise ValueError("the environment has no such variable, or allowlist.pattern does not allow it")
    return environment[key]
