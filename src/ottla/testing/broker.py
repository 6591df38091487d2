"""A broker as a child process.

When `start` returns, the broker answers clients. A restart keeps address and data. The port is below the system's ephemeral
range, where no outgoing connection can take it while the broker is down. (In that range a client that retries could even connect
to itself.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from ottla.runtime.free_ports import free_port, is_free
from ottla.testing.child import Child
from ottla.testing.security import Security

_PORT_TRIES = 100

Value = str | int | float | bool | Iterable[str]


class BrokerFailed(Exception):
    """The broker did not start, or ended by itself. The message includes its log."""


class Broker(Child):
    """A broker for tests, with settings by Kafka's names (`{"num.partitions": 3}`) or as keywords (`num_partitions=3`).

    Data is in `data_dir`, which is kept, or in a temporary directory, which is removed. `security` is a protocol ("SASL_SSL") or
    a `Security`; clients then need `client_config`.
    """

    def __init__(
        self,
        config: Mapping[str, Value] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 60.0,
        security: str | Security | None = None,
        **settings: Value,
    ) -> None:
        super().__init__("broker", BrokerFailed)
        self.security = Security(security) if isinstance(security, str) else security
        self.settings = {name: _text(value) for name, value in (config or {}).items()}
        self.settings.update({name.replace("_", "."): _text(value) for name, value in settings.items()})
        self.start_timeout_s = start_timeout_s
        self.data_dir = Path(data_dir) if data_dir is not None else None
        self._bootstrap_servers = ""
        self._listeners: list[str] = []
        """The bound listeners, with their ports. A restart uses the same."""
        self._port = 0
        """The port that the last start tried, if no listeners are given."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Known after the first start, and the same after a restart."""
        if not self._bootstrap_servers:
            raise RuntimeError("the broker was not started")
        return self._bootstrap_servers

    def start(self) -> Self:
        """Start the broker and return when it is ready. BrokerFailed if it does not start."""
        if self.running:
            return self
        if self.data_dir is None:
            self.data_dir = self._scratch / "data"
        given = bool(self._listeners) or "listeners" in self.settings
        for attempt in range(_PORT_TRIES):
            try:
                self._start_once()
                return self
            except BrokerFailed as failure:
                # Another process took the port after `free_port` found it: try another.
                if given or is_free(self._port) or attempt == _PORT_TRIES - 1:
                    raise failure
        raise AssertionError

    def _start_once(self) -> None:
        settings = {"log.dirs": str(self.data_dir), **self._secured(), **self.settings}
        if self._listeners:
            settings["listeners"] = ",".join(self._listeners)
        elif "listeners" not in settings:
            try:
                self._port = free_port()
            except OSError as error:
                raise BrokerFailed(error.strerror) from error
            protocol = self.security.protocol if self.security is not None else "PLAINTEXT"
            settings["listeners"] = f"{protocol}://127.0.0.1:{self._port}"
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self._launch("serve", words)
        ready: dict[str, Any] = json.loads(self._await_line(self.start_timeout_s))
        self._listeners = list(ready["listeners"])
        self._bootstrap_servers = str(ready["bootstrap_servers"])

    def _secured(self) -> dict[str, str]:
        if self.security is None:
            return {}
        self._security_folder.mkdir(mode=0o700, exist_ok=True)
        return self.security.write(self._security_folder)

    @property
    def _security_folder(self) -> Path:
        """With the data: a broker that starts again on its data has the same users and certificates."""
        assert self.data_dir is not None, "the broker was not started"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        return self.data_dir.parent / f"{self.data_dir.name}-security"

    def client_properties(self, user: str = "admin", mechanism: str | None = None) -> dict[str, str]:
        """Client properties with the names of Java's clients: address, and the login of a user of `security`."""
        secured = self.security.client_properties(self._security_folder, user, mechanism) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    def client_config(self, user: str = "admin", mechanism: str | None = None) -> dict[str, Any]:
        """The same for confluent-kafka: `Producer(broker.client_config("alice"))`."""
        secured = self.security.client_config(self._security_folder, user, mechanism) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        # Kept in a variable: the library cancels the request when the client is garbage.
        admin = AdminClient(self._client())
        admin.create_topics([topic], operation_timeout=30)[name].result(30)

    def delete_topic(self, name: str, *, if_exists: bool = False) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._client())
        try:
            admin.delete_topics([name], operation_timeout=30)[name].result(30)
        except KafkaException as exception:
            if not if_exists or exception.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    def _client(self) -> dict[str, Any]:
        if not self.running:
            raise BrokerFailed(f"the broker is not running; it logged:\n{self.log}".rstrip())
        return {**self.client_config(), "log_level": 0}

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers if self._listeners else 'not started'}{'' if self.running else ', not running'}>"


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(value)
