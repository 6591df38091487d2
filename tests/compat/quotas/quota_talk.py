"""Dialogues about client quotas in the bare protocol: what is set and described, and which error each mistake gets (QU07).

Three mistakes are left out, because Ottla refuses what Kafka accepts: an infinite quota, one that is not a number, and an entity
that names a type twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from ottla.client.connection import ClientConnection
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

Pairs = Sequence[tuple[str, str | None]]
EXACT, DEFAULT, ANY = 0, 1, 2
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


class Talk:
    """Speaks about entities whose names begin with a prefix of its own; a default is asked for by one talk at a time."""

    def __init__(self, connection: ClientConnection, prefix: str) -> None:
        self._connection = connection
        self.prefix = prefix
        self.lines: list[str] = []
        self._altered = False

    def say(self, text: str) -> None:
        self.lines.append(text)

    async def alter(self, version: int, entries: list[tuple[Pairs, list[tuple[str, float | None]]]], check: bool = False) -> None:
        asked = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
            )
            for pairs, ops in entries
        ]
        self.say(f"alter v{version} {entries}{' validate only' if check else ''}".replace(self.prefix, ""))
        try:
            request = AlterClientQuotasRequest(entries=asked, validate_only=check)
            response = await self._connection.call("alter_client_quotas", version, request)
        except ConnectionError:
            self.say("  closed")
            raise
        # Kafka answers in the order of a hash map.
        self.lines += sorted(f"  {self._entity(entry)}: {entry.error_code}" for entry in response.entries)
        self._altered = True

    async def _wait_until_applied(self) -> None:
        """Kafka answers an alteration before its broker has applied it: set a quota, and wait until the broker has removed it."""
        mark = f"{self.prefix}mark"
        components = [ComponentData(entity_type="user", match_type=EXACT, match=mark)]
        for remove, count in ((False, 1), (True, 0)):
            op = OpData(key="producer_byte_rate", value=1.0, remove=remove)
            entry = EntryData(entity=[EntityData(entity_type="user", entity_name=mark)], ops=[op])
            await self._connection.call("alter_client_quotas", 1, AlterClientQuotasRequest(entries=[entry]))
            async with asyncio.timeout(60):
                while True:
                    request = DescribeClientQuotasRequest(components=components, strict=True)
                    response = await self._connection.call("describe_client_quotas", 1, request)
                    if len(response.entries or ()) == count:
                        break
                    await asyncio.sleep(0.01)
        self._altered = False

    async def describe(self, version: int, components: Sequence[tuple[str, int, str | None]], strict: bool) -> None:
        if self._altered:
            await self._wait_until_applied()
        self.say(f"describe v{version} {components} strict={strict}".replace(self.prefix, ""))
        request = DescribeClientQuotasRequest(
            components=[ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components],
            strict=strict,
        )
        response = await self._connection.call("describe_client_quotas", version, request)
        self.say(f"  error {response.error_code}, entries {'null' if response.entries is None else ''}")
        for line in sorted(self._entry(entry) for entry in response.entries or ()):
            self.say(f"  {line}")

    def _entity(self, entry: Any) -> list[tuple[str, str]]:
        return sorted((part.entity_type, str(part.entity_name).replace(self.prefix, "")) for part in entry.entity)

    def _entry(self, entry: Any) -> str:
        return f"{self._entity(entry)} {sorted((each.key, each.value) for each in entry.values)}"


async def mistakes(talk: Talk) -> None:
    u, v, c = (f"{talk.prefix}{name}" for name in "uvc")
    rate: list[tuple[str, float | None]] = [("producer_byte_rate", 1000.0)]
    for version in (0, 1):
        for entity in (
            [("user", u)],
            [("user", u), ("client-id", c)],
            [("client-id", c), ("user", u)],
            [("client-id", c)],
            [("ip", "10.1.2.3"), ("user", u)],
            [("ip", "10.1.2.3"), ("client-id", c)],
            [("ip", "10.1.2.3")],
            [("user", "")],
            [("client-id", "")],
            [("user", u), ("client-id", "")],
            [("team", "x")],
            [("", "x")],
            [("User", u)],
            [("ip", "not an address")],
            [("ip", "")],
            [],
        ):
            await talk.alter(version, [(entity, rate)])
        for key, value in (
            ("no_such_quota", 1.0),
            ("no_such_quota", None),
            ("", 1.0),
            ("connection_creation_rate", 5.0),
            ("SCRAM-SHA-256", 1.0),
            ("producer_byte_rate", 1.5),
            ("producer_byte_rate", 1.0000001),
            ("producer_byte_rate", 0.0),
            ("producer_byte_rate", -1.0),
            ("producer_byte_rate", 1e19),
            ("consumer_byte_rate", 0.5),
            ("request_percentage", 12.5),
            ("request_percentage", 0.0),
            ("request_percentage", -3.0),
            ("controller_mutation_rate", 0.25),
        ):
            await talk.alter(version, [([("user", u)], [(key, value)])])
        for key, value in (
            ("producer_byte_rate", 5.0),
            ("connection_creation_rate", 0.0),
            ("connection_creation_rate", 5.5),
            ("connection_creation_rate", 5.0),
            ("connection_creation_rate", 3e9),
            ("connection_creation_rate", None),
        ):
            await talk.alter(version, [([("ip", "10.1.2.4")], [(key, value)])])
        await talk.alter(version, [([("user", u)], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])])
        await talk.alter(version, [([("user", u)], rate), ([("user", v)], [("nope", 1.0)])])
        await talk.alter(version, [([("user", u)], [("producer_byte_rate", 3.0), ("nope", 1.0)])])
        await talk.alter(version, [([("user", u)], [("consumer_byte_rate", 77.0)])], check=True)
        await talk.alter(version, [([("user", u)], [("nope", 77.0)])], check=True)
        await talk.alter(version, [])
        await talk.alter(version, [([("user", v)], [])])
        await talk.describe(version, [("user", EXACT, u)], True)
        await talk.describe(version, [("user", EXACT, v)], False)
        for components in (
            [("user", EXACT, None)],
            [("user", DEFAULT, "x")],
            [("user", ANY, "x")],
            [("user", 3, None)],
            [("team", EXACT, "x")],
            [("", EXACT, "x")],
            [("user", EXACT, u), ("user", ANY, None)],
            [("user", EXACT, u), ("ip", EXACT, "10.1.2.3")],
            [("ip", ANY, None), ("client-id", EXACT, c)],
            [("user", EXACT, "")],
        ):
            for strict in (True, False):
                await talk.describe(version, components, strict)
        for pairs in ([("user", u)], [("user", u), ("client-id", c)], [("client-id", c)], [("user", v)]):
            await talk.alter(version, [(pairs, [(key, None) for key in QUOTAS])])


async def filters(talk: Talk) -> None:
    """The only talk that sets defaults and asks for all entities; it removes what it has set."""
    u, c = f"{talk.prefix}ü u/+*%", f"{talk.prefix}c d:ä"
    entities: list[Pairs] = [
        [("user", u)],
        [("user", None)],
        [("client-id", c)],
        [("client-id", None)],
        [("user", u), ("client-id", c)],
        [("user", u), ("client-id", None)],
        [("user", None), ("client-id", c)],
        [("user", None), ("client-id", None)],
    ]
    addresses: list[Pairs] = [[("ip", "10.9.8.7")], [("ip", None)]]
    for number, entity in enumerate(entities, 1):
        await talk.alter(1, [(entity, [("producer_byte_rate", float(number)), ("request_percentage", number + 0.5)])])
    for number, entity in enumerate(addresses, 1):
        await talk.alter(1, [(entity, [("connection_creation_rate", float(number))])])
    named = {"user": u, "client-id": c, "ip": "10.9.8.7"}
    choices: list[list[tuple[str, int, str | None]]] = [[]]
    for kind in ("user", "client-id", "ip"):
        choices += [[(kind, EXACT, named[kind])], [(kind, DEFAULT, None)], [(kind, ANY, None)]]
    for one in choices[1:4]:
        for other in choices[4:7]:
            choices.append([*one, *other])
    for components in choices:
        for strict in (True, False):
            await talk.describe(1, components, strict)
    for entity in entities:
        await talk.alter(1, [(entity, [(key, None) for key in QUOTAS])])
    for entity in addresses:
        await talk.alter(1, [(entity, [("connection_creation_rate", None)])])
    await talk.describe(1, [], False)


async def chance(talk: Talk, seed: int) -> None:
    dice = random.Random(seed)
    users = [f"{talk.prefix}{name}" for name in ("a", "b")]
    clients = [f"{talk.prefix}{name}" for name in ("x", "y")]
    for _ in range(30):
        version = dice.randrange(2)
        if dice.random() < 0.6:
            entries: list[tuple[Pairs, list[tuple[str, float | None]]]] = []
            for _ in range(dice.choice((1, 1, 2))):
                entity: list[tuple[str, str | None]] = []
                if dice.random() < 0.8:
                    entity.append(("user", dice.choice(users)))
                if dice.random() < 0.5 or not entity:
                    entity.append(("client-id", dice.choice(clients)))
                keys = dice.sample(QUOTAS, dice.choice((1, 2)))
                values = (None, 1.0, 10.0, 2.5, 1e6, 0.0, -1.0)
                if sorted(entity) not in [sorted(pairs) for pairs, _ in entries]:
                    entries.append((entity, [(key, dice.choice(values)) for key in keys]))
            await talk.alter(version, entries, check=dice.random() < 0.1)
        else:
            components: list[tuple[str, int, str | None]] = []
            user, client = dice.choice(users), dice.choice(clients)
            components.append(("user", EXACT, user))
            if dice.random() < 0.5:
                components.append(("client-id", *dice.choice(((EXACT, client), (ANY, None), (DEFAULT, None)))))
            await talk.describe(version, components, dice.random() < 0.5)


async def converse(host: str, port: int, seeds: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    loop = asyncio.get_running_loop()
    for name in ("mistakes", "filters", *seeds):
        connection = ClientConnection("quotas")
        await loop.create_connection(lambda connection=connection: connection, host, port)  # type: ignore[misc]
        talk = Talk(connection, f"{name}-")
        try:
            if name == "mistakes":
                await mistakes(talk)
            elif name == "filters":
                await filters(talk)
            else:
                await chance(talk, name)
        except ConnectionError:
            talk.say("the connection was closed")
        finally:
            connection.close()
        found[str(name)] = talk.lines
    return found
