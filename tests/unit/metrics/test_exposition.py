"""Prometheus' own parsers read the text, and it comes in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from ottla.metrics.exposition import LINES, exposition, wants_openmetrics
from ottla.metrics.family import Distribution, Family, Kind, Metric, family, histogram_family, quantile_families, single

COUNT = Metric("ottla_things_total", Kind.COUNTER, ("topic",), 'Things, "quoted" with \\.')
LEVEL = Metric("ottla_level", Kind.GAUGE, (), "A level.")
TIME = Metric("kafka_time", Kind.QUANTILES, ("request",), "A time.")
TOOK = Metric("ottla_took_seconds", Kind.HISTOGRAM, ("request",), "How long it took.")


def families() -> Iterator[Family]:
    yield family(COUNT, [(('a "b" \\ \n',), 7), (("c",), 2)])
    yield single(LEVEL, 0.25)
    took = Distribution(("Produce",), [0.1, 0.2, 0.4], [1, 2, 0, 1], [1, 2, 0, 1], 9.5, zeros=2, recent_zeros=2)
    yield from quantile_families(TIME, [took], 1000)
    yield histogram_family(TOOK, [took], [0.1, 0.4])
    yield family(Metric("ottla_absent", Kind.GAUGE, ("topic",), "Nobody has it."), [])


@pytest.mark.parametrize(("openmetrics", "parse"), [(False, parse_prometheus), (True, parse_openmetrics)])
def test_prometheus_reads_it(openmetrics: bool, parse: object) -> None:
    text = "".join(exposition(families(), openmetrics=openmetrics))
    found = {(sample.name, *sorted(sample.labels.items())): sample.value for each in parse(text) for sample in each.samples}  # type: ignore[operator]
    assert found[("ottla_things_total", ("topic", 'a "b" \\ \n'))] == 7
    assert found[("ottla_things_total", ("topic", "c"))] == 2
    assert found[("ottla_level",)] == 0.25
    assert found[("kafka_time", ("quantile", "0.50"), ("request", "Produce"))] == 100
    assert 'kafka_time_count{request="Produce"} 6\n' in text  # the Python parser appends _total to such a name
    buckets = {labels[0][1]: value for (name, *labels), value in found.items() if name == "ottla_took_seconds_bucket"}
    assert buckets == {"0.1": 3, "0.4": 5, "+Inf": 6}
    assert found[("ottla_took_seconds_sum", ("request", "Produce"))] == 9.5
    assert found[("ottla_took_seconds_count", ("request", "Produce"))] == 6
    assert "ottla_absent" not in text
    assert text.endswith("# EOF\n") == openmetrics


def test_a_large_family_comes_in_pieces_and_is_not_made_ahead() -> None:
    made: list[int] = []

    def samples() -> Iterator[tuple[tuple[str], float]]:
        for number in range(3 * LINES):
            made.append(number)
            yield (str(number),), number

    pieces = exposition([family(COUNT, samples())])
    first = next(pieces)
    assert first.count("\n") == LINES + 2
    assert len(made) == LINES
    assert len(list(pieces)) == 2


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=x", False),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
