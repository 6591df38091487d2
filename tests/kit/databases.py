"""Real databases for tests: PostgreSQL and MariaDB servers, and the JDBC drivers by which Spark reaches them and H2.

Owns: finding or installing the programs, a server with its own directory and port, and a client to look into it. A server refuses
to run as root, so a test that does gives it to the user `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.kit.peers import MissingCounterpart, Service, debian_program, free_ports, program, single_jars

DRIVERS = (
    "org.postgresql:postgresql:42.7.8",
    "org.mariadb.jdbc:mariadb-java-client:3.5.6",
    "com.h2database:h2:2.4.240",
)
_USER = "nobody"


def driver_jars() -> list[Path]:
    """The JDBC drivers, for `spark.jars`; fetched once."""
    return single_jars("jdbc", DRIVERS)


class Database(Service):
    """A database server. Its data ends with it."""

    def __init__(self) -> None:
        # Not below pytest's directory, which only its owner may enter.
        super().__init__(tempfile.mkdtemp(prefix=f"ottla-{self.name}-"))
        self._own_dir = True
        (self.port,) = free_ports(1)

    def url(self, database: str) -> str:
        """For JDBC."""
        raise NotImplementedError

    def execute(self, database: str, statement: str) -> str:
        """What the statement prints: a line for each row, columns separated by tabs."""
        raise NotImplementedError

    def rows(self, database: str, query: str) -> list[tuple[str, ...]]:
        """NULL is the text NULL."""
        return [tuple(line.split("\t")) for line in self.execute(database, query).splitlines()]

    def create_database(self, name: str) -> str:
        raise NotImplementedError

    def own(self) -> None:
        """Give the directory to the server's user."""
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            for path in (self.dir, *self.dir.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)


def _unprivileged(command: Sequence[str]) -> list[str]:
    if os.geteuid() != 0:
        return list(command)
    user = pwd.getpwnam(_USER)
    setpriv = program("setpriv", "it is part of util-linux (Debian: `apt-get install util-linux`)")
    # A change of the user clears the signal of a parent's death, so it is set again.
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [setpriv, *ids, "--pdeathsig", "KILL", *command]


def _run(command: Sequence[str], *, input: str | None = None) -> str:
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


@cache
def _postgresql_programs() -> Path:
    """The directory of initdb and postgres, which Debian keeps off the PATH."""

    def found() -> list[Path]:
        beside = [Path(path).resolve().parent for name in ("postgres", "initdb") if (path := shutil.which(name))]
        return beside + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)

    if not found():
        debian_program("pg_ctl", "postgresql")
    if not found():
        raise MissingCounterpart("PostgreSQL is needed: install it (Debian: `apt-get install postgresql`)")
    return found()[0]


class PostgreSQL(Database):
    name = "postgresql"

    def start(self) -> None:
        programs = _postgresql_programs()
        self.own()
        if not (self.dir / "data").exists():
            options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
            _run(_unprivileged([str(programs / "initdb"), "-D", str(self.dir / "data"), *options]))
        super().start()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            # A killed server loses nothing by it, only a machine does.
            "fsync": "off",
            "max_connections": "60",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = [str(_postgresql_programs() / "postgres"), "-D", str(self.dir / "data"), "-p", str(self.port), *words]
        return _unprivileged(server)

    def is_ready(self) -> bool:
        ask = [str(_postgresql_programs() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ask, capture_output=True).returncode == 0

    def url(self, database: str) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}?user=postgres"

    def execute(self, database: str, statement: str) -> str:
        psql = [str(_postgresql_programs() / "psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-P", "null=NULL"]
        return _run(
            [*psql, "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", database], input=statement
        )

    def create_database(self, name: str) -> str:
        self.execute("postgres", f'CREATE DATABASE "{name}"')
        return self.url(name)


class MariaDB(Database):
    name = "mariadb"

    def start(self) -> None:
        install = debian_program("mariadb-install-db", "mariadb-server")
        debian_program("mariadbd", "mariadb-server")
        self.own()
        if not (self.dir / "data").exists():
            _run(
                _unprivileged(
                    [
                        install,
                        "--no-defaults",
                        f"--datadir={self.dir}/data",
                        "--auth-root-authentication-method=normal",
                        "--skip-test-db",
                    ]
                )
            )
        super().start()

    def command(self) -> list[str]:
        return _unprivileged(
            [
                debian_program("mariadbd", "mariadb-server"),
                "--no-defaults",
                f"--datadir={self.dir}/data",
                f"--socket={self.dir}/socket",
                f"--pid-file={self.dir}/pid",
                f"--port={self.port}",
                "--bind-address=127.0.0.1",
                "--innodb-flush-log-at-trx-commit=2",
                "--skip-log-bin",
                "--character-set-server=utf8mb4",  # as Debian's own configuration has it
            ]
        )

    def _client(self, *words: str) -> list[str]:
        client = debian_program("mariadb", "mariadb-client")
        return [client, "--no-defaults", "-u", "root", "-h", "127.0.0.1", "-P", str(self.port), "--protocol=tcp", *words]

    def is_ready(self) -> bool:
        return subprocess.run(self._client("-e", "SELECT 1"), capture_output=True).returncode == 0

    def url(self, database: str) -> str:
        return f"jdbc:mariadb://127.0.0.1:{self.port}/{database}?user=root"

    def execute(self, database: str, statement: str) -> str:
        return _run(self._client("--batch", "--skip-column-names", "--default-character-set=utf8mb4", database), input=statement)

    def create_database(self, name: str) -> str:
        self.execute("mysql", f"CREATE DATABASE `{name}`")
        return self.url(name)
