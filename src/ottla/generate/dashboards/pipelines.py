"""Pipelines on Spark: are they running, do they keep up, what takes the time. From `ottla pipeline run … --metrics`."""

from __future__ import annotations

from typing import Final

from ottla.generate.dashboards.grafana import Dashboard, Row, Variable, graph, stat

_FLOW: Final = 'kafka_cluster=~"$cluster",pipeline=~"$pipeline",flow=~"$flow"'
_LEGEND: Final = "{{pipeline}} {{flow}}"


def _gauge(name: str) -> tuple[str, str]:
    return f"ottla_pipeline_{name}{{{_FLOW}}}", _LEGEND


def _rate(name: str) -> tuple[str, str]:
    return f"rate(ottla_pipeline_{name}_total{{{_FLOW}}}[$__rate_interval])", _LEGEND


PIPELINES: Final = Dashboard(
    "ottla-pipelines",
    "Ottla: pipelines",
    (
        Variable("cluster", "label_values(ottla_pipeline_up, kafka_cluster)"),
        Variable("pipeline", 'label_values(ottla_pipeline_up{kafka_cluster=~"$cluster"}, pipeline)'),
        Variable("flow", 'label_values(ottla_pipeline_up{pipeline=~"$pipeline"}, flow)'),
    ),
    (
        Row(
            "All chosen flows",
            (
                stat("Flows running", f"sum(ottla_pipeline_up{{{_FLOW}}})", red_below=1),
                stat("Flows not running", f"count(ottla_pipeline_up{{{_FLOW}}} == 0) or vector(0)", red_from=1),
                stat("Lag", f"sum(ottla_pipeline_lag{{{_FLOW}}})"),
                stat("Dead letters in an hour", f"sum(increase(ottla_pipeline_dead_letters_total{{{_FLOW}}}[1h]))", red_from=1),
                stat("Batches run again in an hour", f"sum(increase(ottla_pipeline_run_again_total{{{_FLOW}}}[1h]))"),
                stat("Oldest checkpoint", f"max(ottla_pipeline_checkpoint_age_seconds{{{_FLOW}}})", "s"),
            ),
        ),
        Row(
            "Do they keep up?",
            (
                graph("Lag", _gauge("lag")),
                graph("Records read", _rate("rows_in"), unit="cps"),
                graph("Records written", _rate("records_out"), unit="cps"),
                graph("Dead letters", _rate("dead_letters"), unit="cps"),
                graph(
                    "Rows that did not meet an expectation",
                    (f"rate(ottla_pipeline_unmet_total{{{_FLOW}}}[$__rate_interval])", "{{flow}} {{expectation}}"),
                    unit="cps",
                ),
                graph("Rows behind the watermark", _rate("late_rows"), unit="cps", about="Spark dropped them."),
                graph(
                    "Watermark behind now",
                    (f"time() - ottla_pipeline_watermark_seconds{{{_FLOW}}}", _LEGEND),
                    unit="s",
                    about="Only flows with a watermark.",
                ),
                graph("Checkpoint age", _gauge("checkpoint_age_seconds"), unit="s"),
            ),
        ),
        Row(
            "What takes the time?",
            (
                graph("Last batch", _gauge("batch_ms"), unit="ms"),
                graph("Of it, the transaction", _gauge("transaction_ms"), unit="ms"),
                graph(
                    "Of it, by phase",
                    (f"sum by (phase) (ottla_pipeline_phase_ms{{{_FLOW}}})", "{{phase}}"),
                    unit="ms",
                ),
                graph("Batches", _rate("batches"), unit="ops"),
                graph("Rows of state", _gauge("state_rows")),
                graph("Memory of state", _gauge("state_bytes"), unit="bytes"),
            ),
        ),
    ),
)
