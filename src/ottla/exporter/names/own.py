"""What other exporters do not have: lead, lag and lead in seconds, rebalances, transactions. Labels as in kafka_exporter."""

from __future__ import annotations

from collections import Counter

from ottla.exporter.exposition import Page, counter, gauge
from ottla.exporter.names.view import View, of_topic
from ottla.exporter.reading import Transactions

_READ = ("consumergroup", "topic", "partition")

LAG_SECONDS = gauge("kafka_consumergroup_lag_seconds", "Age of the record that the group reads next; 0 at the end", _READ)
LEAD = gauge("kafka_consumergroup_lead", "Records between the log start and the committed offset; below 0 some are lost", _READ)
LEAD_SECONDS = gauge(
    "kafka_consumergroup_lead_seconds", "Time until retention deletes the record that the group reads next", _READ
)
LAG_SECONDS_MAX = gauge("kafka_consumergroup_lag_seconds_max", "Largest lag in seconds of the topic's partitions", _READ[:2])
LEAD_MIN = gauge("kafka_consumergroup_lead_min", "Smallest lead of the topic's partitions", _READ[:2])
LEAD_SECONDS_MIN = gauge("kafka_consumergroup_lead_seconds_min", "Smallest lead in seconds of the partitions", _READ[:2])
STATE = gauge("kafka_consumergroup_state", "1 for the state that the group has", ("consumergroup", "state"))
REBALANCES = counter("kafka_consumergroup_rebalances_total", "Rebalances seen since the exporter started", _READ[:1])
TRANSACTIONS = gauge("ottla_transactions", "Transactional ids by the state of their transaction", ("state",))
OPEN_SECONDS_MAX = gauge("ottla_transaction_open_seconds_max", "Age of the oldest open transaction; 0 without one")
OVER_TIMEOUT = gauge("ottla_transactions_over_timeout", "Transactions open for longer than their producer's timeout")
HANGING = gauge("ottla_transactions_hanging", "Open transactions that no coordinator will end")
HANGING_IN = gauge("ottla_partition_transactions_hanging", "Of them, those in this partition", ("topic", "partition"))

FAMILIES = (
    LAG_SECONDS, LEAD, LEAD_SECONDS, LAG_SECONDS_MAX, LEAD_MIN, LEAD_SECONDS_MIN, STATE, REBALANCES,
    TRANSACTIONS, OPEN_SECONDS_MAX, OVER_TIMEOUT, HANGING, HANGING_IN,
)  # fmt: skip


def write(page: Page, view: View) -> None:
    read, topics = view.read_partitions(*_READ), view.read_topics(*_READ[:2])
    page.add_labelled(LAG_SECONDS, read, lambda each: each.lag_s)
    page.add_labelled(LEAD, read, lambda each: each.lead)
    page.add_labelled(LEAD_SECONDS, read, lambda each: each.lead_s)
    page.add_labelled(LAG_SECONDS_MAX, topics, of_topic(lambda each: each.lag_s, max))
    page.add_labelled(LEAD_MIN, topics, of_topic(lambda each: each.lead, min))
    page.add_labelled(LEAD_SECONDS_MIN, topics, of_topic(lambda each: each.lead_s, min))
    page.add(STATE, [((each.group.name, each.group.state), 1) for each in view.groups if each.group.state])
    page.add(REBALANCES, [((each.group.name,), each.rebalances) for each in view.groups])
    if view.reading.transactions is not None:
        _write_transactions(page, view.reading.transactions)


def _write_transactions(page: Page, transactions: Transactions) -> None:
    states = Counter(each.state for each in transactions.by_id)
    open_for = [(each.open_s, each.timeout_s) for each in transactions.by_id if each.open_s is not None]
    page.add(TRANSACTIONS, [((state,), count) for state, count in sorted(states.items())])
    page.add(OPEN_SECONDS_MAX, [((), round(max((open_s for open_s, _ in open_for), default=0.0), 3))])
    page.add(OVER_TIMEOUT, [((), sum(timeout_s is not None and open_s > timeout_s for open_s, timeout_s in open_for))])
    page.add(HANGING, [((), sum(transactions.hanging.values()))])
    page.add(HANGING_IN, sorted(transactions.hanging.items()))
