"""Prometheus's text format."""

from __future__ import annotations

from ottla.exporter.exposition import Page, counter, gauge


def test_a_family() -> None:
    page = Page()
    page.add(counter("a_total", "Things", ("kind",)), [(("x",), 1), (("y",), 2.5), (("z",), None)])
    assert page.text() == '# HELP a_total Things\n# TYPE a_total counter\na_total{kind="x"} 1\na_total{kind="y"} 2.5\n'


def test_labels_are_escaped() -> None:
    page = Page()
    page.add(gauge("a", "Things", ("group",)), [(('say "hi"\\\n',), 1)])
    assert page.text().endswith('a{group="say \\"hi\\"\\\\\\n"} 1\n')


def test_a_percent_sign_is_a_character() -> None:
    page = Page()
    page.add(gauge("a", "Things", ("group",)), [(("100%s",), 1)])
    assert page.text().endswith('a{group="100%s"} 1\n')


def test_a_family_without_samples_is_left_out() -> None:
    page = Page()
    page.add(gauge("a", "Things"), [((), None)])
    assert page.text() == ""
