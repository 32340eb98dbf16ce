"""Read two topics into tables, join and sum them, and write the result to a topic.

The watermark is set on the topic itself: on a dataset of the same pipeline, Spark 4.3 looks up the
table before it exists.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

ORDER = "id bigint, user string, product string, amount double, at timestamp"
CLICK = "user string, page string, at timestamp"


def topic(name: str, schema: str) -> DataFrame:
    """Return a topic's JSON values as columns, from its first record on."""
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("ottla.bootstrap"))
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .load()
    )
    return rows.select(F.from_json(F.col("value").cast("string"), schema).alias("it")).select(
        "it.*"
    )


@dp.table
def orders() -> DataFrame:
    """Return every order exactly once."""
    return topic("shop-orders", ORDER)


@dp.table
def clicks() -> DataFrame:
    """Return every click exactly once."""
    return topic("shop-clicks", CLICK)


@dp.table
def orders_after_clicks() -> DataFrame:
    """Join each order with the clicks of its user in the five minutes before it."""
    bought = topic("shop-orders", ORDER).withWatermark("at", "1 minute").alias("o")
    seen = topic("shop-clicks", CLICK).withWatermark("at", "1 minute").alias("c")
    near = F.expr("o.user = c.user and c.at between o.at - interval 5 minutes and o.at")
    return bought.join(seen, near).select(
        "o.id", "o.user", "o.product", "o.amount", "o.at", "c.page"
    )


@dp.table
def revenue_per_minute() -> DataFrame:
    """Sum the orders per minute; a minute appears once the watermark has passed it."""
    return (
        topic("shop-orders", ORDER)
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "1 minute").alias("minute"))
        .agg(F.count("*").alias("orders"), F.round(F.sum("amount"), 2).alias("revenue"))
        .select(F.col("minute.start").alias("minute"), "orders", "revenue")
    )


dp.create_sink(
    "revenue_topic",
    "ottla",
    {
        "kafka.bootstrap.servers": spark.conf.get("ottla.bootstrap") or "",
        "topic": "shop-revenue",
        "delivery": "exactly-once",
    },
)


@dp.append_flow(target="revenue_topic")
def revenue_to_topic() -> DataFrame:
    """Write every minute back to a topic."""
    rows = spark.readStream.table("revenue_per_minute")
    return rows.select(
        F.date_format("minute", "yyyy-MM-dd HH:mm").alias("key"),
        F.to_json(F.struct("minute", "orders", "revenue")).alias("value"),
    )
