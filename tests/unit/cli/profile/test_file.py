"""The file of profiles: what it may say, who may read it, and that a change keeps everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.failure import Failure
from ottla.cli.profile.definition import Profile
from ottla.cli.profile.file import EXAMPLE, added, config_path, parse_file, read_file, removed, using, write_file

PATH = Path("config.toml")
TEXT = """\
# mine
current = "dev"   # for now

[profiles.dev]  # here
bootstrap_servers = "127.0.0.1:9092"

[profiles.prod]
bootstrap_servers = ["a:9093", "b:9093"]
protected = true
colour = "red"
password_command = "pass show prod"

[profiles.prod.properties]
"security.protocol" = "SASL_SSL"
"fetch.min.bytes" = 5
"enable.auto.commit" = false
"""


def test_a_file_is_parsed() -> None:
    file = parse_file(PATH, TEXT)
    assert file.current == "dev"
    prod = file.profile("prod")
    assert (prod.bootstrap_servers, prod.protected, prod.colour) == ("a:9093,b:9093", True, "red")
    assert prod.properties == {
        "security.protocol": "SASL_SSL",
        "fetch.min.bytes": "5",
        "enable.auto.commit": "false",
        "sasl.password_command": "pass show prod",
    }
    assert prod.runs_commands
    assert not prod.holds_secrets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profiles.dev", "is not TOML"),
        ("[profile.dev]\nbootstrap_servers='a'", "unknown key profile"),
        ("[profiles.dev]\n", "bootstrap_servers is missing"),
        ("[profiles.dev]\nbootstrap_server='a'", "unknown key bootstrap_server"),
        ("[profiles.dev]\nbootstrap_servers='a'\nprotected='yes'", "neither true nor false"),
        ("[profiles.dev]\nbootstrap_servers='a'\ncolour='loud'", "colour 'loud' is unknown"),
        ("[profiles.dev]\nbootstrap_servers='a'\n[profiles.dev.properties]\nsasl.mechanism='PLAIN'", "sasl is a section"),
        ("[profiles.dev]\nbootstrap_servers='a'\n[profiles.dev.properties]\n'bootstrap.servers'='b'", "bootstrap.servers is no"),
        ("[profiles.'a b']\nbootstrap_servers='a'", "is not a name"),
        ("current = 5", "current is not"),
    ],
)
def test_an_invalid_file_is_told(text: str, message: str) -> None:
    with pytest.raises(Failure, match=message) as caught:
        parse_file(PATH, text)
    assert caught.value.exit_code == 2


def test_a_misspelt_profile_is_told() -> None:
    with pytest.raises(Failure) as caught:
        parse_file(PATH, TEXT).profile("prd")
    assert caught.value.hint == "did you mean prod?"


def test_the_example_is_valid_with_and_without_its_comments() -> None:
    assert parse_file(PATH, EXAMPLE).profiles == {}
    bare = "\n".join(line.removeprefix("# ") for line in EXAMPLE.splitlines()[1:])
    assert set(parse_file(PATH, bare).profiles) == {"local", "prod"}


def test_changes_keep_comments_and_other_lines() -> None:
    file = parse_file(PATH, TEXT)
    new = Profile("test", "c:1", {"sasl.password": 'q"\\\n\x01ü', "a_command": "x"}, True, "blue")
    text = added(file, new)
    assert text.startswith(TEXT)
    assert parse_file(PATH, text).profile("test") == new
    text = using(parse_file(PATH, text), "test")
    assert "# mine" in text
    assert parse_file(PATH, text).current == "test"
    text = removed(parse_file(PATH, text), "test")
    assert parse_file(PATH, text) == parse_file(PATH, text.replace("# mine\n", "# mine\n"))
    assert parse_file(PATH, text).current is None
    assert parse_file(PATH, removed(file, "prod")).profiles.keys() == {"dev"}
    assert removed(file, "prod").startswith(TEXT[: TEXT.index("[profiles.prod]")].rstrip())
    assert parse_file(PATH, using(parse_file(PATH, ""), None)).current is None


def test_a_file_written_in_an_unusual_way_is_not_damaged() -> None:
    inline = parse_file(PATH, 'profiles = {dev = {bootstrap_servers = "a:1"}}\n')
    with pytest.raises(Failure):
        added(inline, Profile("x", "b:1"))
    with pytest.raises(Failure, match="unusual"):
        removed(inline, "dev")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "ottla" / "config.toml"
    secret = '[profiles.dev]\nbootstrap_servers = "a:1"\n[profiles.dev.properties]\n"sasl.password" = "pw"\n'
    write_file(path, secret)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    with pytest.raises(Failure, match="holds secrets") as caught:
        read_file(path)
    assert caught.value.hint == f"chmod 600 {path}"
    for harmless in ('"sasl.password" = "${PW}"', '"ssl.keystore.location" = "x"', '"sasl.password_command" = "pass"'):
        path.write_text(secret.replace('"sasl.password" = "pw"', harmless))
        assert read_file(path).profiles
    path.chmod(0o620)
    with pytest.raises(Failure, match="can be changed by other users"):
        read_file(path)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    link = tmp_path / "config.toml"
    link.symlink_to(tmp_path / "dotfiles" / "config.toml")
    write_file(link, "")
    assert link.is_symlink()
    assert (tmp_path / "dotfiles" / "config.toml").exists()


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert config_path() == tmp_path / ".config" / "ottla" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert config_path() == tmp_path / ".config" / "ottla" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "x"))
    assert config_path() == tmp_path / "x" / "ottla" / "config.toml"
    assert read_file().profiles == {}
