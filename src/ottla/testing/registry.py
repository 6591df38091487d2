"""A schema registry as a child process, on a broker that runs already.

When `start` returns, the registry answers. A restart keeps the address. The schemas are in the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ottla.runtime.free_ports import free_port
from ottla.testing.broker import Broker
from ottla.testing.child import Child


class RegistryFailed(Exception):
    """The registry did not start. The message includes its log."""


class Registry(Child):
    """`with Registry(broker) as registry: SchemaRegistryClient({"url": registry.url})`.

    `properties` are client properties for the broker, by the names of Java's clients. A secured `Broker` brings its own.
    """

    def __init__(
        self,
        broker: Broker | str,
        *,
        properties: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        scheme: str = "http",
        start_timeout_s: float = 60.0,
    ) -> None:
        super().__init__("registry", RegistryFailed)
        self._broker = broker
        self._properties = dict(properties or {})
        self._options = list(options)
        self._start_timeout_s = start_timeout_s
        self._port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self._port}"

    def launch(self) -> Registry:
        """Start the process, without waiting for it."""
        file = self._scratch / "client.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in self._client_properties().items()))
        words = ["-b", self._bootstrap_servers(), "--listen", f"127.0.0.1:{self._port}", "--command-config", str(file)]
        self._launch("registry", [*words, *self._options])
        return self

    def await_ready(self) -> Registry:
        self._await_line(self._start_timeout_s)
        return self

    def start(self) -> Self:
        """Start the registry and return when it answers. RegistryFailed if it does not start."""
        if not self.running:
            self.launch().await_ready()
        return self

    def _bootstrap_servers(self) -> str:
        return self._broker if isinstance(self._broker, str) else self._broker.bootstrap_servers

    def _client_properties(self) -> dict[str, str]:
        secured = {} if isinstance(self._broker, str) else self._broker.client_properties()
        secured.pop("bootstrap.servers", None)
        return secured | self._properties

    def __repr__(self) -> str:
        return f"<Registry {self.url}{'' if self.running else ', not running'}>"
