"""Sessions: events of a user without a pause of thirty minutes belong together."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla import pipelines as p

clicks = p.source("clicks", p.json("user string, page string, at timestamp"))


@p.flow(clicks, to=p.sink("sessions", key="user"))
def sessions(clicks: DataFrame) -> DataFrame:
    visits = clicks.withWatermark("at", "10 minutes").groupBy(F.session_window("at", "30 minutes"), "user")
    found = visits.agg(F.count("*").alias("clicks"), F.collect_set("page").alias("pages"))
    began, ended = F.col("session_window.start"), F.col("session_window.end")
    return found.select("user", began.alias("began"), ended.alias("ended"), "clicks", F.array_sort("pages").alias("pages"))
