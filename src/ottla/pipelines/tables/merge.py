"""The SQL that brings a staging table into its target, in the words of each database. Pure text: it never talks to one.

The staging table has the columns of the flow and, in every mode but append, ORDER and DELETED; with history FROM and TO too.

Invariants
1. All statements of a batch run in one transaction, so each may rely on those before it.
2. Of the rows of a key the one with the greatest ORDER wins.
3. Names of columns are always quoted, names of tables never: Spark's JDBC options do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.pipelines.deletes import DELETED

ORDER, FROM, TO = "ottla_order", "ottla_from", "ottla_to"
VALID_FROM, VALID_TO, CURRENT = "valid_from", "valid_to", "current"


@dataclass(frozen=True)
class Dialect:
    """What differs between the databases."""

    name: str
    drivers: tuple[str, ...]
    """Classes of the JDBC driver, the usual one first."""
    quotes: str
    boolean: str
    timestamp: str
    key_text: str
    """For text in a key: the usual type for text cannot be indexed everywhere."""

    def quoted(self, name: str) -> str:
        opening, closing = self.quotes[0], self.quotes[1]
        return f"{opening}{name.replace(closing, closing * 2)}{closing}"

    def list(self, names: Sequence[str], of: str = "") -> str:
        return ", ".join(f"{of}{self.quoted(name)}" for name in names)

    def truth(self, value: bool) -> str:
        return str(int(value)) if self is SQL_SERVER else str(value).upper()


# Keys that differ in case only are different keys.
_MYSQL_KEY = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
POSTGRESQL = Dialect("PostgreSQL", ("org.postgresql.Driver",), '""', "BOOLEAN", "TIMESTAMP(6) WITH TIME ZONE", "TEXT")
MYSQL = Dialect("MySQL", ("com.mysql.cj.jdbc.Driver", "org.mariadb.jdbc.Driver"), "``", "BOOLEAN", "TIMESTAMP(6)", _MYSQL_KEY)
MARIADB = replace(MYSQL, name="MariaDB", drivers=("org.mariadb.jdbc.Driver",))
H2 = Dialect("H2", ("org.h2.Driver",), '""', "BOOLEAN", "TIMESTAMP(6) WITH TIME ZONE", "VARCHAR(255)")
SQL_SERVER = Dialect(
    "SQL Server",
    ("com.microsoft.sqlserver.jdbc.SQLServerDriver",),
    "[]",
    "BIT",
    "DATETIME2(6)",
    "NVARCHAR(255) COLLATE Latin1_General_100_BIN2",
)
DIALECTS = {
    "jdbc:postgresql:": POSTGRESQL,
    "jdbc:mysql:": MYSQL,
    "jdbc:mariadb:": MARIADB,
    "jdbc:h2:": H2,
    "jdbc:sqlserver:": SQL_SERVER,
}


def dialect_of(url: str) -> Dialect | None:
    return next((dialect for prefix, dialect in DIALECTS.items() if url.lower().startswith(prefix)), None)


def create_table(dialect: Dialect, target: str, columns: Sequence[tuple[str, str]], key: Sequence[str], *, history: bool) -> str:
    """`columns` are names and types."""
    parts = [f"{dialect.quoted(name)} {kind} {'NOT NULL' if name in key else 'NULL'}" for name, kind in columns]
    primary = list(key)
    if history:
        parts.append(f"{dialect.quoted(VALID_FROM)} {dialect.timestamp} NOT NULL")
        parts.append(f"{dialect.quoted(VALID_TO)} {dialect.timestamp} NULL")
        parts.append(f"{dialect.quoted(CURRENT)} {dialect.boolean} NOT NULL")
        primary.append(VALID_FROM)
    return f"CREATE TABLE {target} ({', '.join(parts)}, PRIMARY KEY ({dialect.list(primary)}))"


def create_staging(dialect: Dialect, target: str, staging: str, columns: Sequence[str], *, history: bool) -> str:
    """With the column types of the target. The outer join makes every column nullable: a tombstone has nothing but its key."""
    own = {ORDER: "BIGINT", DELETED: "INTEGER", **(dict.fromkeys((FROM, TO), dialect.timestamp) if history else {})}
    chosen = ", ".join(f"t.{dialect.quoted(name)}" for name in columns)
    source = f"FROM (SELECT 1 AS one) o LEFT JOIN {target} t ON 1 = 0 WHERE 1 = 0"
    if dialect in (MYSQL, MARIADB):
        # Here a cast does not decide the type of a column.
        more = ", ".join(f"{dialect.quoted(name)} {kind} NULL" for name, kind in own.items())
        return f"CREATE TABLE {staging} ({more}) AS SELECT {chosen} {source}"
    more = ", ".join(f"CAST(NULL AS {kind}) AS {dialect.quoted(name)}" for name, kind in own.items())
    if dialect is SQL_SERVER:
        return f"SELECT {chosen}, {more} INTO {staging} {source}"
    # Its rows are written once and read once; a crash of the database only makes the batch run again.
    kind = "UNLOGGED TABLE" if dialect is POSTGRESQL else "TABLE"
    return f"CREATE {kind} {staging} AS SELECT {chosen}, {more} {source}"


def append(dialect: Dialect, target: str, staging: str, columns: Sequence[str]) -> list[str]:
    return [f"INSERT INTO {target} ({dialect.list(columns)}) SELECT {dialect.list(columns)} FROM {staging}"]


def upsert(dialect: Dialect, target: str, staging: str, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    q, names = dialect.quoted, dialect.list(columns)
    values = [name for name in columns if name not in key]
    rank = f"ROW_NUMBER() OVER (PARTITION BY {dialect.list(key)} ORDER BY {q(ORDER)} DESC) AS ottla_rank"
    latest = f"(SELECT {names}, {q(DELETED)} FROM (SELECT {names}, {q(DELETED)}, {rank} FROM {staging}) r WHERE ottla_rank = 1)"
    same_key = _same_key(dialect, key)
    present, gone = f"l.{q(DELETED)} = 0", f"l.{q(DELETED)} = 1"
    if dialect is POSTGRESQL:
        sets = ", ".join(f"{q(name)} = EXCLUDED.{q(name)}" for name in values)
        return [
            f"DELETE FROM {target} t USING {latest} l WHERE {same_key} AND {gone}",
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {latest} l WHERE {present} "
            f"ON CONFLICT ({dialect.list(key)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}",
        ]
    if dialect in (MYSQL, MARIADB):
        sets = ", ".join(f"{q(name)} = VALUES({q(name)})" for name in values or key)
        return [
            f"DELETE t FROM {target} t JOIN {latest} l ON {same_key} WHERE {gone}",
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {latest} l WHERE {present} ON DUPLICATE KEY UPDATE {sets}",
        ]
    sets = ", ".join(f"{q(name)} = l.{q(name)}" for name in values)
    locked, end = (" WITH (HOLDLOCK)", ";") if dialect is SQL_SERVER else ("", "")
    return [
        f"MERGE INTO {target}{locked} AS t USING {latest} AS l ON {same_key} WHEN MATCHED AND {gone} THEN DELETE "
        + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
        + f"WHEN NOT MATCHED AND {present} THEN INSERT ({names}) VALUES ({dialect.list(columns, 'l.')}){end}"
    ]


def history(dialect: Dialect, target: str, staging: str, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    """The staging table holds the changes of each key, numbered from 1, no two equal ones in succession, each with the time from
    which it is valid and the time to which."""
    q, true, false = dialect.quoted, dialect.truth(True), dialect.truth(False)
    values = [name for name in columns if name not in key]
    is_current = f"{target}.{q(CURRENT)} = {true}"
    same_key = " AND ".join(f"{target}.{q(name)} = {staging}.{q(name)}" for name in key)
    unchanged = "".join(f" AND {_same_value(dialect, f'{target}.{q(name)}', f'{staging}.{q(name)}')}" for name in values)
    changes = f"FROM {staging} WHERE {same_key}"
    return [
        # What the table says already is no change.
        f"DELETE FROM {staging} WHERE {q(ORDER)} = 1 AND {q(DELETED)} = 0 AND EXISTS "
        f"(SELECT 1 FROM {target} WHERE {same_key} AND {is_current}{unchanged})",
        f"UPDATE {target} SET {q(VALID_TO)} = (SELECT MIN({staging}.{q(FROM)}) {changes}), {q(CURRENT)} = {false} "
        f"WHERE {is_current} AND EXISTS (SELECT 1 {changes})",
        f"INSERT INTO {target} ({dialect.list([*columns, VALID_FROM, VALID_TO, CURRENT])}) SELECT {dialect.list(columns)}, "
        f"{q(FROM)}, {q(TO)}, CASE WHEN {q(TO)} IS NULL THEN {true} ELSE {false} END FROM {staging} WHERE {q(DELETED)} = 0",
    ]


def _same_key(dialect: Dialect, key: Sequence[str]) -> str:
    return " AND ".join(f"t.{dialect.quoted(name)} = l.{dialect.quoted(name)}" for name in key)


def _same_value(dialect: Dialect, left: str, right: str) -> str:
    """Whether two values are equal, or both null."""
    if dialect in (MYSQL, MARIADB):
        # Otherwise a change of case would be no change.
        return f"CAST({left} AS BINARY) <=> CAST({right} AS BINARY)"
    if dialect is SQL_SERVER:
        return f"EXISTS (SELECT {left} INTERSECT SELECT {right})"
    return f"{left} IS NOT DISTINCT FROM {right}"
