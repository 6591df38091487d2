"""Parses the listeners of a broker (F68): bound addresses, advertised addresses, the inter-broker listener.

The syntax is `NAME://host:port`, with Kafka's rules on names, ports and protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.cluster.image import Endpoint
from ottla.cluster.settings.setting import Value

_IPV6: Final = r"(?:[0-9a-fA-F]*:){2,}[0-9a-fA-F.]*(?:%[\w.-]+)?"
_ADDRESS: Final = re.compile(rf"([^:/]+)://(?:\[({_IPV6})\]|({_IPV6}|[^:\[\]/]*)):(-?[0-9]+)", re.ASCII)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE: Final = ("0.0.0.0", "::", "[::]")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Listeners:
    bind: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """As configured: a host may be empty and a port 0 until `resolve`."""
    inter_broker: str

    def resolve(self, bound_ports: Mapping[str, int], hostname: str) -> tuple[Endpoint, ...]:
        """The advertised endpoints with the bound ports (by listener name) and `hostname` for empty hosts."""
        return tuple(
            replace(
                endpoint,
                host=endpoint.host or hostname,
                port=endpoint.port or bound_ports[endpoint.listener],
            )
            for endpoint in self.advertised
        )


def parse_listeners(value_of: Callable[[str], Value], problems: list[str], warnings: list[str]) -> Listeners:
    """Parse the five settings of listeners; problems are added to `problems`."""
    protocols = _protocol_map(_text(value_of("listener.security.protocol.map")), problems)
    left_out = {name.upper() for name in _list(value_of("controller.listener.names"))}
    bind = _endpoints("listeners", _list(value_of("listeners")), protocols, left_out, problems)
    for endpoint_name in left_out & {name.upper() for name in _names(_list(value_of("listeners")))}:
        warnings.append(f"listener {endpoint_name} is not opened: it belongs to a KRaft controller, which Ottla does not have")
    if not bind and not problems:
        problems.append("listeners must name at least one listener, such as PLAINTEXT://127.0.0.1:9092")
    _check_bind(bind, problems)

    told = value_of("advertised.listeners")
    if told is None or told == ():
        advertised = bind
    else:
        advertised = _endpoints("advertised.listeners", _list(told), protocols, left_out, problems)
        for endpoint in advertised:
            if endpoint.listener not in {bound.listener for bound in bind}:
                problems.append(
                    f"advertised.listeners names the listener {endpoint.listener}, which is not in listeners; "
                    f"allowed: {', '.join(bound.listener for bound in bind)}"
                )
        _check_names("advertised.listeners", advertised, problems)
    for endpoint in advertised:
        if endpoint.host in _EVERYWHERE:
            problems.append(
                f"{endpoint} cannot be advertised, because {endpoint.host} means every interface; "
                f"set advertised.listeners to an address at which clients reach this broker"
            )
    return Listeners(bind, advertised, _inter_broker(value_of, advertised, problems))


def _inter_broker(value_of: Callable[[str], Value], advertised: tuple[Endpoint, ...], problems: list[str]) -> str:
    name = value_of("inter.broker.listener.name")
    protocol = _text(value_of("security.inter.broker.protocol"))
    if isinstance(name, str) and name:
        if name.upper() not in {endpoint.listener for endpoint in advertised}:
            problems.append(
                f"inter.broker.listener.name={name} is not one of the listeners: "
                f"{', '.join(endpoint.listener for endpoint in advertised)}"
            )
        return name.upper()
    for endpoint in advertised:
        if endpoint.listener == protocol:
            return endpoint.listener
    for endpoint in advertised:
        if endpoint.security_protocol == protocol:
            return endpoint.listener
    if protocol != "PLAINTEXT":
        problems.append(
            f"security.inter.broker.protocol={protocol}: no listener has this protocol; "
            f"listeners: {', '.join(str(endpoint) for endpoint in advertised)}"
        )
    return advertised[0].listener if advertised else protocol


def _protocol_map(text: str, problems: list[str]) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for element in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in element.partition(":"))
        if not name or not colon:
            problems.append(f"listener.security.protocol.map: {element} is not allowed; allowed: NAME:PROTOCOL")
        elif protocol not in _PROTOCOLS:
            problems.append(f"listener.security.protocol.map: {element}: unknown protocol; allowed: {', '.join(_PROTOCOLS)}")
        elif name in protocols:
            problems.append(f"listener.security.protocol.map: listener {name} appears twice")
        else:
            protocols[name] = protocol
    return protocols


def _endpoints(
    setting: str, addresses: tuple[str, ...], protocols: Mapping[str, str], left_out: set[str], problems: list[str]
) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for address in filter(None, addresses):
        match = _ADDRESS.fullmatch(address)
        if match is None:
            problems.append(f"{setting}: {address} is not an address; allowed: NAME://host:port, IPv6 as NAME://[::1]:port")
            continue
        name, bracketed, plain, digits = match.groups()
        name, host = name.strip().upper(), bracketed or plain or ""
        port = int(digits[:7])
        if name in left_out:
            continue
        if not 0 <= port <= _PORT_MAX:
            problems.append(f"{setting}: the port of {address} is not allowed; allowed: 0 to {_PORT_MAX}, 0 for a free one")
            continue
        protocol = protocols.get(name)
        if protocol is None:
            problems.append(
                f"{setting}: listener {name} has no security protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
            )
            continue
        endpoints.append(Endpoint(name, host, port, protocol))
    return tuple(endpoints)


def _check_bind(bind: tuple[Endpoint, ...], problems: list[str]) -> None:
    _check_names("listeners", bind, problems)
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in bind:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, endpoints in by_port.items():
        # One IPv4 and one IPv6 address may share a port.
        families = [":" in endpoint.host for endpoint in endpoints]
        if len(endpoints) > 2 or (len(endpoints) == 2 and families[0] == families[1]):
            problems.append(f"listeners: port {port} is used by {' and '.join(str(endpoint) for endpoint in endpoints)}")


def _check_names(setting: str, endpoints: tuple[Endpoint, ...], problems: list[str]) -> None:
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint.listener in seen:
            problems.append(f"{setting}: listener {endpoint.listener} appears twice; listener names must be unique")
        seen.add(endpoint.listener)


def _names(addresses: tuple[str, ...]) -> list[str]:
    return [address.partition("://")[0].strip() for address in addresses]


def _list(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
