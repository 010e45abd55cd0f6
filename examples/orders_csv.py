"""Orders from CSV files: every paid order as JSON lines, and the revenue of each city in an SQLite table.

    lockgate submit examples/orders_csv.py --wait

Shows a declared schema, a Python function over DataFrames, two sinks behind one stream, and fixed operator ids.
"""

from pathlib import Path

from lockgate import Job, avg, count, sum_


def with_amount(orders):
    """Adds what an order is worth. Runs on the task managers, once per plan: expressions only, no actions."""
    return orders.withColumn("amount_cents", orders.quantity * orders.price_cents)


job = Job("orders", parallelism=2, retain_after_end=True)

paid = (
    job.read_csv(
        Path(__file__).parent / "data" / "orders.csv",
        schema="order_id BIGINT, city STRING, status STRING, quantity INT, price_cents BIGINT, ordered_at TIMESTAMP",
        header=True,
    )
    .uid("orders")
    .filter("status = 'paid'")
    .uid("only-paid")
    .transform(with_amount)
    .uid("amount")
)

paid.write_json("orders-paid").uid("paid-orders")

(
    paid.key_by("city")
    .aggregate(orders=count(), revenue_cents=sum_("amount_cents"), mean_cents=avg("amount_cents"))
    .uid("revenue")
    .write_sql("sqlite:///orders.db", "revenue", key="city")
    .uid("revenue-table")
)

job.submit()
