"""The SQL of SQL Server, which no server here can run, and what decides whether a column fits (F82).

PostgreSQL, MariaDB and H2 run theirs in `tests/pipelines/test_upserts`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.tables import merge
from ottla.pipelines.tables.changes import is_assignable
from ottla.pipelines.tables.databases import column_types
from tests.kit.databases import driver_jars
from tests.kit.peers import program

SERVER = merge.SQL_SERVER
COLUMNS = [("id", "BIGINT"), ("a b", "NVARCHAR(50)")]
NAMES = [name for name, _ in COLUMNS]


def test_sql_server_merges_in_one_statement_under_a_lock() -> None:
    (statement,) = merge.upsert(merge.SQL_SERVER, "dbo.orders", "dbo.staging", ["id", "a]b"], ["id"])
    assert statement == (
        "MERGE INTO dbo.orders WITH (HOLDLOCK) AS t USING (SELECT [id], [a]]b], [ottla_deleted] FROM (SELECT [id], [a]]b], "
        "[ottla_deleted], ROW_NUMBER() OVER (PARTITION BY [id] ORDER BY [ottla_order] DESC) AS ottla_rank FROM dbo.staging) r "
        "WHERE ottla_rank = 1) AS l ON t.[id] = l.[id] WHEN MATCHED AND l.[ottla_deleted] = 1 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET [a]]b] = l.[a]]b] "
        "WHEN NOT MATCHED AND l.[ottla_deleted] = 0 THEN INSERT ([id], [a]]b]) VALUES (l.[id], l.[a]]b]);"
    )
    assert "INTO dbo.staging FROM" in merge.create_staging(merge.SQL_SERVER, "dbo.orders", "dbo.staging", ["id"], history=False)


@pytest.mark.parametrize(
    "dialect", {dialect.name: dialect for dialect in merge.DIALECTS.values()}.values(), ids=lambda each: each.name
)
def test_a_table_of_keys_alone_has_nothing_to_update(dialect: merge.Dialect) -> None:
    text = " ".join(merge.upsert(dialect, "t", "s", ["id"], ["id"]))
    assert "SET " not in text.replace("ON DUPLICATE KEY UPDATE", "")


@pytest.mark.parametrize(
    ("kind", "column", "fits"),
    [
        ("bigint", "bigint", True),
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("bigint", "decimal(38,0)", True),
        ("float", "double", True),
        ("double", "float", False),
        ("double", "bigint", False),
        ("string", "varchar(10)", True),
        ("string", "bigint", False),
        ("bigint", "string", False),
        ("timestamp", "timestamp_ntz", True),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("void", "date", True),
    ],
)
def test_whether_every_value_fits_a_column(kind: str, column: str, fits: bool) -> None:
    assert is_assignable(kind, column) is fits


def test_types_of_columns_may_have_commas() -> None:
    assert column_types("id BIGINT, amount DECIMAL(10, 2), `Name` VARCHAR(20)") == {
        "id": "BIGINT",
        "amount": "DECIMAL(10, 2)",
        "name": "VARCHAR(20)",
    }


def test_every_statement_for_sql_server_is_transact_sql() -> None:
    sqlglot: Any = pytest.importorskip("sqlglot", reason="pip install sqlglot")
    statements = [
        merge.create_table(SERVER, "dbo.orders", [("id", "BIGINT"), ("a]b", SERVER.key_text)], ["id"], history=True),
        *(merge.create_staging(SERVER, "dbo.orders", "dbo.s", ["id", "a]b"], history=history) for history in (False, True)),
        *merge.append(SERVER, "dbo.orders", "dbo.s", ["id", "a]b"]),
        *merge.upsert(SERVER, "dbo.orders", "dbo.s", ["id", "a]b"], ["id"]),
        *merge.upsert(SERVER, "dbo.orders", "dbo.s", ["id"], ["id"]),
        *merge.history(SERVER, "dbo.orders", "dbo.s", ["id", "a]b"], ["id"]),
    ]
    for statement in statements:
        (parsed,) = (each for each in sqlglot.parse(statement, dialect="tsql") if each is not None)
        # What the parser does not know becomes a command.
        assert parsed.find(sqlglot.exp.Command) is None, statement


def test_the_statements_for_sql_server_do_what_they_should_in_h2(tmp_path: Path) -> None:
    """H2 takes Transact-SQL in a mode of its own, without hints of locks and SELECT INTO."""
    staged = "[id] BIGINT NULL, [a b] NVARCHAR(50) NULL, [ottla_order] BIGINT NULL, [ottla_deleted] INTEGER NULL"
    script = [
        "CREATE SCHEMA dbo",
        merge.create_table(SERVER, "dbo.orders", COLUMNS, ["id"], history=False),
        "INSERT INTO dbo.orders VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        f"CREATE TABLE dbo.s ({staged})",
        "INSERT INTO dbo.s VALUES (1, 'x', 1, 0), (1, 'ONE', 2, 0), (2, NULL, 3, 1), (4, 'four', 4, 0)",
        "INSERT INTO dbo.s VALUES (5, 'x', 5, 0), (5, NULL, 6, 1)",
        *merge.upsert(SERVER, "dbo.orders", "dbo.s", NAMES, ["id"]),
        "SELECT * FROM dbo.orders ORDER BY [id]",
        merge.create_table(SERVER, "dbo.h", COLUMNS, ["id"], history=True),
        *(f"INSERT INTO dbo.h VALUES ({row}, '2026-01-01', NULL, 1)" for row in ("1, 'one'", "2, 'two'", "3, NULL")),
        f"CREATE TABLE dbo.c ({staged}, [ottla_from] DATETIME2(6) NULL, [ottla_to] DATETIME2(6) NULL)",
        *(
            f"INSERT INTO dbo.c VALUES ({row}, '2026-01-02', NULL)"
            for row in ("1, 'ONE', 1, 0", "2, NULL, 1, 1", "3, NULL, 1, 0")
        ),
        *merge.history(SERVER, "dbo.h", "dbo.c", NAMES, ["id"]),
        "SELECT [id], [a b], DAY([valid_from]), DAY([valid_to]), [current] FROM dbo.h ORDER BY [id], [valid_from]",
    ]
    file = tmp_path / "script.sql"
    file.write_text("".join(f"{each.rstrip(';').replace(' WITH (HOLDLOCK)', '')};\n" for each in script))
    (jar,) = (str(each) for each in driver_jars() if each.name.startswith("h2"))
    words = ["-url", "jdbc:h2:mem:x;MODE=MSSQLServer", "-script", str(file), "-showResults"]
    done = subprocess.run(
        [program("java", "install a Java 17 runtime"), "-cp", jar, "org.h2.tools.RunScript", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("--> ") for line in done.stdout.splitlines() if line.startswith("--> ")] == [
        *("1 ONE", "3 three", "4 four"),
        *("1 one 1 2 FALSE", "1 ONE 2 null TRUE", "2 two 1 2 FALSE", "3 null 1 null TRUE"),
    ]
