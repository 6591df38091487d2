"""`ottla generate`: files for Prometheus, Grafana and systemd. What is in them is in `ottla.generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import Commands

app = Commands(help="Files for Prometheus, Grafana and systemd.", no_args_is_help=True)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="A directory to write to. (default: print the files)")
]


def _addresses(name: str, help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="HOST:PORT[,…]", help=help)
    return option


@app.add("scrape")
def scrape(
    brokers: Annotated[str, _addresses("--brokers", "Where brokers serve metrics.")] = "127.0.0.1:9404",
    exporter: Annotated[str, _addresses("--exporter", "Where `ottla exporter` listens.")] = "127.0.0.1:9308",
    pipelines: Annotated[str, _addresses("--pipelines", "Where pipelines serve metrics.")] = "",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The name of the cluster, a label of all metrics.")] = "ottla",
    job: Annotated[str, typer.Option(metavar="NAME", help="Job of brokers. Grafana Cloud: integrations/kafka.")] = "kafka-broker",
    output: Output = None,
) -> None:
    """Configuration of Prometheus: prometheus.yml."""
    from ottla.generate.scrape import Targets

    targets = Targets(_list(brokers), _list(exporter), _list(pipelines), cluster, job)
    _write("scrape", output, targets)


@app.add("rules")
def rules(output: Output = None) -> None:
    """Recording rules: the names that Confluent's and Grafana's dashboards ask for."""
    _write("rules", output)


@app.add("alerts")
def alerts(output: Output = None) -> None:
    """Alert rules for brokers, groups, transactions and pipelines."""
    _write("alerts", output)


@app.add("dashboards")
def dashboards(output: Output = None) -> None:
    """Grafana's dashboards: brokers, topics, groups, pipelines. Import the JSON, or provision the directory."""
    _write("dashboards", output)


@app.add("systemd")
def systemd(output: Output = None) -> None:
    """Units of systemd for a broker and for the exporter."""
    _write("systemd", output)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _write(kind: str, output: Path | None, targets: object = None) -> None:
    from ottla.generate.kinds import KINDS
    from ottla.generate.scrape import Targets

    files = KINDS[kind](targets if isinstance(targets, Targets) else Targets())
    if output is None:
        print("\n".join(files.values()) if len(files) == 1 else _with_names(files), end="")
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (output / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write to {output}: {error.strerror}", exit_code=EXIT_USAGE) from None
    print("\n".join(str(output / name) for name in files))


def _with_names(files: dict[str, str]) -> str:
    return "\n".join(f"# {name}\n{text}" for name, text in files.items())
