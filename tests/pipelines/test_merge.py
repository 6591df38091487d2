"""The SQL of upserts that no database here can run, and what decides whether a column fits (F82).

PostgreSQL, MariaDB and H2 run theirs in `tests/pipelines/test_upserts`.
"""

from __future__ import annotations

import pytest

from ottla.pipelines.tables import merge
from ottla.pipelines.tables.databases import column_types, is_assignable


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
