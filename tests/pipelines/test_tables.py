"""What goes wrong with tables, in the words a user reads (F82). That they hold each batch once: `test_exactly_once`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla import pipelines as p
from ottla.pipelines import spark_jvm, tables

SPARK = cast(Any, SimpleNamespace(version="4.3.0"))


def test_jars_made_for_another_spark_are_said_to_be_so() -> None:
    """As Delta 4.2 fails on Spark 4.3: deep inside, when the first batch is written."""
    said = "An error occurred while calling o70.save.\n: java.lang.NoSuchMethodError: 'void LogicalRDD.<init>(Seq)'\n\tat a.b"
    found = tables._failed(SPARK, p.table("/lake", "delta"), RuntimeError(said), "flow 'rows', ")
    assert found.message == "flow 'rows', table '/lake': java.lang.NoSuchMethodError: 'void LogicalRDD.<init>(Seq)'"
    assert found.hint == "use delta jars that are made for Spark 4.3.0"
    assert found.place is not None
    assert found.place.file == __file__


def test_a_driver_that_spark_does_not_find_by_the_address_alone_is_to_be_named() -> None:
    error = RuntimeError("An error occurred while calling o1.save.\n: java.sql.SQLException: No suitable driver\n\tat a.b")
    found = tables._failed(SPARK, p.jdbc("jdbc:h2:mem:x", "orders"), error)
    assert found.message == "table 'orders': No suitable driver"
    assert found.hint is not None
    assert 'options={"driver"' in found.hint
    assert tables._failed(SPARK, p.jdbc("jdbc:h2:mem:x", "orders"), RuntimeError("no such column")).hint is None


def test_another_failure_has_no_hint() -> None:
    found = tables._failed(SPARK, p.table("lake.t", "iceberg"), RuntimeError("[CATALOG_NOT_FOUND] no lake\nJVM stacktrace"))
    assert (found.message, found.hint) == ("table 'lake.t': [CATALOG_NOT_FOUND] no lake", None)
    assert tables._failed(SPARK, p.table("/t"), RuntimeError("NoClassDefFoundError: x")).hint is None


def test_a_class_that_does_not_fit_this_spark_is_not_said_to_be_missing() -> None:
    def loaded(name: str, initialize: bool, checked: bool) -> None:
        raise RuntimeError("An error occurred: java.lang.IncompatibleClassChangeError: class View can not implement View")

    utils = SimpleNamespace(Utils=SimpleNamespace(classForName=loaded))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(util=utils))))
    assert spark_jvm.has_class(cast(Any, SimpleNamespace(_jvm=jvm)), "org.apache.iceberg.spark.SparkCatalog")
