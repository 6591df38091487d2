"""The file of profiles, `config.toml`: where it is, who may read it, and changes that keep its comments.

Invariants:
1. Nobody else may write it: it names commands to run.
2. Nobody else may read it if it holds secrets.
3. A change leaves all other lines as they are, and is written only if the result parses to what was wanted.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean
from ottla.cli.profile.definition import Profile, check_name, parse_profile

EXAMPLE = """\
# Profiles of the command `ottla`: see `ottla profile --help`.
# current = "local"

# [profiles.local]
# bootstrap_servers = "127.0.0.1:9092"

# [profiles.prod]
# bootstrap_servers = "broker-1:9093,broker-2:9093"
# protected = true                          # ask before changes
# colour = "red"
# password_command = "pass show kafka/prod" # its first line is sasl.password
# [profiles.prod.properties]
# "security.protocol" = "SASL_SSL"
# "sasl.mechanism" = "SCRAM-SHA-512"
# "sasl.username" = "${USER}"
"""

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]*?)\s*\]")
_CURRENT = re.compile(r"\s*current\s*=")


def config_path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    # The specification says to ignore a relative one.
    folder = Path(home) if home and os.path.isabs(home) else Path.home() / ".config"
    return folder / "ottla" / "config.toml"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    path: Path
    text: str
    profiles: Mapping[str, Profile]
    current: str | None

    def profile(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(self.profiles)
            hint = did_you_mean(name, self.profiles) or (f"{self.path} has {known}" if known else f"{self.path} has none yet")
            raise Failure(f"profile {name} does not exist", hint, exit_code=EXIT_USAGE)
        return self.profiles[name]


def read_file(path: Path | None = None) -> ProfileFile:
    """The file, or an empty one if it does not exist. Failure if it is invalid or open to others."""
    path = path or config_path()
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ProfileFile(path, "", {}, None)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", exit_code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"cannot read {path}: it is not UTF-8 text", exit_code=EXIT_USAGE) from None
    found = parse_file(path, text)
    _check_mode(found, mode)
    return found


def parse_file(path: Path, text: str) -> ProfileFile:
    document = _parse(path, text)
    unknown = [key for key in document if key not in ("current", "profiles")]
    if unknown:
        hint = "profiles are sections [profiles.NAME]; mend it with `ottla profile edit`"
        raise Failure(f"{path}: unknown key {unknown[0]}", hint, exit_code=EXIT_USAGE)
    sections = document.get("profiles", {})
    if not isinstance(sections, dict):
        raise Failure(f"{path}: profiles are sections [profiles.NAME]", exit_code=EXIT_USAGE)
    profiles = {name: parse_profile(name, section, str(path)) for name, section in sections.items()}
    current = document.get("current")
    if current is not None and not isinstance(current, str):
        raise Failure(f"{path}: current is not the name of a profile", exit_code=EXIT_USAGE)
    return ProfileFile(path, text, profiles, current or None)


def _parse(path: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{path} is not TOML: {error}", "mend it with `ottla profile edit`", exit_code=EXIT_USAGE) from None


def _check_mode(file: ProfileFile, mode: int) -> None:
    """Invariants 1 and 2."""
    hint = f"chmod 600 {file.path}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Failure(f"{file.path} can be changed by other users: mode {mode:04o}", hint, exit_code=EXIT_USAGE)
    if mode & (stat.S_IRGRP | stat.S_IROTH) and any(profile.holds_secrets for profile in file.profiles.values()):
        raise Failure(f"{file.path} holds secrets and can be read by other users: mode {mode:04o}", hint, exit_code=EXIT_USAGE)


# Changes


def added(file: ProfileFile, profile: Profile) -> str:
    """The text with one profile more."""
    lines = [f"[profiles.{check_name(profile.name)}]", f"bootstrap_servers = {_quoted(profile.bootstrap_servers)}"]
    lines += ["protected = true"] if profile.protected else []
    lines += [f"colour = {_quoted(profile.colour)}"] if profile.colour else []
    if profile.properties:
        lines += ["", f"[profiles.{profile.name}.properties]"]
        lines += [f"{_quoted(name)} = {_quoted(value)}" for name, value in profile.properties.items()]
    before = file.text if not file.text or file.text.endswith("\n") else f"{file.text}\n"
    text = before + ("\n" if before else "") + "".join(f"{line}\n" for line in lines)
    return _checked(file, text, {**file.profiles, profile.name: profile}, file.current)


def removed(file: ProfileFile, name: str) -> str:
    """The text without the sections of a profile. If it was the current one, there is none."""
    kept, inside = [], False
    for line in file.text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            words = [word.strip(" \"'") for word in header.group(1).split(".")]
            inside = words[:2] == ["profiles", name]
        if not inside:
            kept.append(line)
    profiles = {key: profile for key, profile in file.profiles.items() if key != name}
    text = "".join(kept).rstrip("\n") + "\n"
    if file.current == name:
        text = _with_current(text, None)
    return _checked(file, text, profiles, None if file.current == name else file.current)


def using(file: ProfileFile, name: str | None) -> str:
    """The text with another current profile, or none."""
    return _checked(file, _with_current(file.text, name), file.profiles, name)


def _with_current(text: str, name: str | None) -> str:
    lines = text.splitlines(keepends=True)
    top = next((number for number, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    kept = [line for line in lines[:top] if not _CURRENT.match(line)]
    if name is not None:
        kept = [f"current = {_quoted(name)}\n", *(kept or ["\n"])]
    return "".join([*kept, *lines[top:]])


def _checked(file: ProfileFile, text: str, profiles: Mapping[str, Profile], current: str | None) -> str:
    """Invariant 3."""
    result = parse_file(file.path, text)
    if dict(result.profiles) != dict(profiles) or result.current != current:
        raise Failure(f"cannot change {file.path}: it is written in an unusual way", "use `ottla profile edit`")
    return text


def _quoted(text: str) -> str:
    """A TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match.group()):04x}", escaped) + '"'


def write_file(path: Path, text: str) -> None:
    """Replace the file, readable for its owner only. A link stays a link."""
    import tempfile

    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".config.", suffix=".toml", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None
