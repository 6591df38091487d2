"""Deduplication: devices send a reading again if they are not sure that it arrived, for up to an hour."""

from pyspark.sql import DataFrame

from ottla import pipelines as p

readings = p.source("readings", p.json("device string, sequence long, celsius double, at timestamp"))


@p.flow(readings, to=p.sink("readings_once", key="device"))
def readings_once(readings: DataFrame) -> DataFrame:
    return readings.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["device", "sequence"])
