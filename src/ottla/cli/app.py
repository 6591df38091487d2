"""The tree of commands. Imports Typer and Rich, but not the Kafka client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import acl, config, elect, generate, perf, quota, token, topic, user
from ottla.cli.cluster.status import status
from ottla.cli.cluster.up import up
from ottla.cli.connections import connections
from ottla.cli.console.command import console
from ottla.cli.consume import consume
from ottla.cli.copying.destination import stays_here
from ottla.cli.delete_records import delete_records
from ottla.cli.dlq import command as dlq
from ottla.cli.doctor.command import doctor
from ottla.cli.exporter import exporter
from ottla.cli.find.command import find
from ottla.cli.group import command as group
from ottla.cli.log import command as log
from ottla.cli.log_dirs import command as log_dirs
from ottla.cli.mirror.command import mirror
from ottla.cli.options import Command, Commands
from ottla.cli.pipeline import command as pipeline
from ottla.cli.plan import plan
from ottla.cli.produce import produce
from ottla.cli.profile import command as profile
from ottla.cli.reassign import command as reassign
from ottla.cli.registry import registry
from ottla.cli.schema import command as schema
from ottla.cli.secure import command as secure
from ottla.cli.txn import command as txn
from ottla.cli.verify_replicas.command import verify_replicas

app = Commands(
    help="Kafka's little sister: a broker, and commands for any Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from ottla import __version__

        print(f"ottla {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    pass


@app.command("serve", cls=Command)
def serve(
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="A server.properties file.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", "-d", metavar="DIR", help="Same as --set log.dirs=DIR.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting (repeatable). Overrides all other sources."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics there. Same as --set metrics.listener=HOST:PORT."),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option("--console", metavar="[HOST:PORT]", help="Serve the web console too. (default: 127.0.0.1:8080)"),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="[HOST:PORT]", help="Serve a schema registry too. (default: 127.0.0.1:8081)"),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", metavar="FILE", help="Append log lines to this file, not to stderr. SIGHUP opens it again."),
    ] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", metavar="text|json", help="json: an object a line.")] = None,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", metavar="LEVEL", help="TRACE to FATAL; LOGGER=LEVEL for one logger."),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    By default it listens on 127.0.0.1:9092 and keeps its data in ./ottla-data.

    A setting comes from --set, else the environment (OTTLA_LOG_RETENTION_MS), else --config, else it has Kafka's default.
    """
    # Only tests that call the app itself come here: `ottla.cli.main` starts a broker without Typer.
    from ottla.cli.serve import main

    options = {
        "--config": config,
        "--data-dir": data_dir,
        "--metrics": metrics,
        "--console": console,
        "--registry": registry,
        "--log-file": log_file,
        "--log-format": log_format,
        "--log-level": log_level,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    raise typer.Exit(main([*words, *(word for pair in set_ or [] for word in ("--set", pair))]))


cluster = Commands(help="A cluster: start one on this machine, or show any.", no_args_is_help=True)
cluster.add("up")(up)
cluster.add("status")(status)
app.add_typer(topic.app, name="topic")
app.add_typer(config.app, name="config")
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(acl.app, name="acl")
app.add_typer(quota.app, name="quota")
app.add_typer(user.app, name="user")
app.add_typer(token.app, name="token")
app.add_typer(secure.app, name="secure")
app.add("produce", changes=True)(produce)
app.add("consume", changes=lambda options: options["group"] is not None)(consume)
app.add("exporter")(exporter)
app.add("registry")(registry)
app.add_typer(schema.app, name="schema")
app.add_typer(generate.app, name="generate")
app.add("find")(find)
app.add("mirror", changes=stays_here)(mirror)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(cluster, name="cluster")
app.add_typer(reassign.app, name="reassign")
app.add_typer(dlq.app, name="dlq")
app.add("delete-records", changes=lambda options: not options["dry_run"])(delete_records)
app.add_typer(log_dirs.app, name="log-dirs")
app.add_typer(elect.app, name="elect")
app.add("verify-replicas")(verify_replicas)
app.add("connections")(connections)
app.add("console")(console)
app.add("doctor", changes=lambda options: options["probe"])(doctor)
app.add("plan")(plan)
app.add_typer(log.app, name="log")
app.add_typer(perf.app, name="perf")
app.add_typer(profile.app, name="profile")
