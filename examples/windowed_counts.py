"""Page views by page and minute: the word count of streaming."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla import pipelines as p

views = p.source("views", p.json("page string, user string, at timestamp"), dead_letter="views.dlq")


@p.flow(views, to=p.sink("views_per_minute", key="page"))
def views_per_minute(views: DataFrame) -> DataFrame:
    minutes = views.withWatermark("at", "30 seconds").groupBy(F.window("at", "1 minute"), "page")
    return minutes.agg(F.count("*").alias("views")).select("page", F.col("window.start").alias("minute"), "views")
