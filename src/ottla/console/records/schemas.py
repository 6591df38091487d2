"""Keys and values that name a schema of the registry, as JSON text. Threads share it.

1. What an id stands for is asked for once. An id that the registry does not know is asked for again after `REFUSED_S`.
2. Bytes that begin with a zero need not name a schema: of unknown ids at most `REFUSED_MAX` are asked for in `REFUSED_S`.
3. While no registry answers it is asked once in `AWAY_S`. What is known is read meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.schema_registry import RegistryFailed, SchemaRegistry
from ottla.client.schema_values import Found, NotOfSchema, SchemaValues
from ottla.schemas.framing import NotFramed, SchemaName, names_schema, prefix_of, read_id
from ottla.schemas.model import AVRO, JSON, PROTOBUF

FORMAT_OF_TYPE: Final = {AVRO: "avro", JSON: "json_schema", PROTOBUF: "protobuf"}
SCHEMA_FORMATS: Final = tuple(FORMAT_OF_TYPE.values())
REFUSED_S: Final = 60.0
REFUSED_MAX: Final = 1000
AWAY_S: Final = 5.0
PLACES_S: Final = 60.0
_UNKNOWN: Final = "schema"
"""The format of a value whose schema is not known."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of a key or value that names a schema. Without `text` it cannot be read, and `why` says why."""

    format: str
    why: str = ""
    text: str | None = None
    schema_id: int = 0
    schema_type: str = ""
    away: bool = False
    """It may be read once the registry answers."""


class Schemas:
    def __init__(self, registry: SchemaRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._values = SchemaValues(registry)
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[bytes, Found] = {}
        self._refused: dict[SchemaName, tuple[float, str]] = {}
        self._away: tuple[float, str] = (0.0, "")
        self._places: dict[int, tuple[float, list[dict[str, Any]]]] = {}

    def read(self, data: bytes) -> Reading | None:
        """None if the bytes name no schema."""
        if not names_schema(data):
            return None
        found = self._found.get(prefix_of(data))
        # The payload of Protobuf begins behind the indexes of its message.
        if found is None or found.schema.schema_type == PROTOBUF:
            with self._lock:
                looked_up = self._look_up(data)
            if isinstance(looked_up, Reading):
                return looked_up
            found = looked_up
        schema = found.schema
        form = FORMAT_OF_TYPE[schema.schema_type]
        try:
            return Reading(form, "", found.text(data), schema.schema_id, schema.schema_type)
        except NotOfSchema as error:
            return Reading(form, str(error), None, schema.schema_id, schema.schema_type)

    def document(self, reading: Reading, topic: str, part: str) -> Mapping[str, Any]:
        """What is told of the schema of a value: its id, its type, and a subject that has it, first the topic's own."""
        with self._lock:
            places = self._places_of(reading.schema_id)
        own = f"{topic}-{part}"
        chosen = next((each for each in places if each["subject"] == own), places[0] if places else {})
        return {"id": reading.schema_id, "type": reading.schema_type, **chosen}

    def _look_up(self, data: bytes) -> Found | Reading:
        schema_id = read_id(data).schema_id
        now_s = self._clock()
        known = self._found.get(prefix_of(data))
        if known is None:
            until_s, why = self._refused.get(schema_id, (0.0, ""))
            if now_s < until_s:
                return Reading(_UNKNOWN, why)
            until_s, why = self._away
            if now_s < until_s:
                return Reading(_UNKNOWN, why, away=True)
            if len(self._refused) >= REFUSED_MAX and not self._forget_refused(now_s):
                return Reading(_UNKNOWN, f"too many of the schema ids here are unknown; {schema_id} was not asked for")
        try:
            found = self._values.found(data)
        except RegistryFailed as error:
            # Only a plain no is about the id.
            if error.code // 100 in (4, 404):
                return self._refuse(schema_id, now_s, str(error))
            self._away = (now_s + AWAY_S, str(error))
            return Reading(_UNKNOWN, str(error), away=True)
        except NotFramed as error:
            return Reading(FORMAT_OF_TYPE[PROTOBUF], str(error))
        except ModuleNotFoundError as error:
            return self._refuse(schema_id, now_s, f"package {error.name} is not installed: pip install 'ottla[registry]'")
        except Exception as error:
            return self._refuse(schema_id, now_s, f"schema {schema_id} of the registry cannot be used: {error}")
        if found.schema.schema_type not in FORMAT_OF_TYPE:
            return self._refuse(schema_id, now_s, f"schema {schema_id} is {found.schema.schema_type}, which is unknown here")
        self._found[prefix_of(data)] = found
        return found

    def _refuse(self, schema_id: SchemaName, now_s: float, why: str) -> Reading:
        self._refused[schema_id] = (now_s + REFUSED_S, why)
        return Reading(_UNKNOWN, why)

    def _forget_refused(self, now_s: float) -> bool:
        for schema_id in [each for each, (until_s, _) in self._refused.items() if until_s <= now_s]:
            del self._refused[schema_id]
        return len(self._refused) < REFUSED_MAX

    def _places_of(self, schema_id: int) -> list[dict[str, Any]]:
        now_s = self._clock()
        until_s, places = self._places.get(schema_id, (0.0, []))
        if now_s < until_s or now_s < self._away[0]:
            return places
        try:
            listed = self._registry.request("GET", f"/schemas/ids/{schema_id}/versions")
            places = [{"subject": each["subject"], "version": each["version"]} for each in listed]
        except RegistryFailed as error:
            if not error.code:
                self._away = (now_s + AWAY_S, str(error))
        except (KeyError, TypeError):
            places = []
        self._places[schema_id] = (now_s + PLACES_S, places)
        return places
