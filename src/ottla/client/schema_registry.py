"""A client of a schema registry: Ottla's, Confluent's, Karapace's or another of the same API.

What an id stands for never changes, so that it is asked for once. An object is used by one thread at a time; its options are what
travels to another process.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from ottla.schemas.framing import SchemaName
from ottla.schemas.model import AVRO, ParsedSchema, Reference, ResolvedReference
from ottla.schemas.parsing import parse

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SETTINGS: Final = {
    "url": "url",
    "basic.auth.user.info": "user_info",
    "bearer.auth.token": "token",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
}
_NEWER: Final = "Confluent-Accept-Unknown-Properties"
"""Asks for the fields of answers that clients did not always know, such as `guid`."""
_CONFLICT: Final = re.compile(
    r"""\{errorType:['"].*?['"], description:['"](?P<what>.*?)['"](?:, additionalInfo:['"](?P<remedy>.*)['"])?\}""", re.DOTALL
)
_PLAIN: Final = re.compile(r"\{(oldSchemaVersion|compatibility): '?(\w+)'?\}")
_RETRIED: Final = frozenset({408, 429, 502, 503, 504})


class RegistryFailed(Exception):
    """The registry refused a request, or none answered. `code` is the registry's error code, 0 if none answered."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[RegistryFailed], tuple[str, int]]:
        return type(self), (str(self), self.code)


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Where the registry is and who asks. `url` may list several of one cluster, with commas."""

    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 30.0

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> RegistryOptions:
        """The options of Confluent's settings: `url`, `basic.auth.user.info`, `ssl.ca.location` and so on."""
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise ValueError(f"unknown registry setting {unknown[0]}; the settings are {', '.join(_SETTINGS)}")
        if not settings.get("url"):
            raise ValueError("the registry has no url, such as http://127.0.0.1:8081")
        return cls(**{_SETTINGS[name]: value for name, value in settings.items()})  # type: ignore[arg-type]

    @property
    def urls(self) -> list[str]:
        return [each.strip().rstrip("/") for each in self.url.split(",") if each.strip()]


class Rule(NamedTuple):
    """A rule of a schema, such as a condition in CEL or the encryption of a field, which Confluent's clients run."""

    name: str
    type: str
    mode: str

    def __str__(self) -> str:
        return f"{self.name} ({self.type}, {self.mode})"


WRITING: Final = frozenset({"WRITE", "WRITEREAD"})
"""The modes of rules that change or check what is written, and what is read."""
READING: Final = frozenset({"READ", "WRITEREAD", "UPGRADE", "DOWNGRADE", "UPDOWN"})


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as the registry has it. `version` is 0 if the registry was asked by id."""

    schema_id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    guid: str = ""
    """Empty if the registry is too old to have GUIDs."""
    metadata: Mapping[str, Any] | None = field(default=None, compare=False)
    rule_set: Mapping[str, Any] | None = field(default=None, compare=False)

    def rules_not_run(self, modes: frozenset[str]) -> str | None:
        """Why the schema cannot be used for writing or reading: nothing here runs rules."""
        found = [str(each) for each in _rules(self.rule_set) if each.mode in modes]
        what = f"schema {self.schema_id} has the rule{'s' * (len(found) > 1)} {', '.join(found)}"
        return f"{what}, which only Confluent's clients run" if found else None

    @classmethod
    def of(cls, document: Mapping[str, Any], schema_id: int | None = None) -> Registered:
        references = tuple(Reference(each["name"], each["subject"], each["version"]) for each in document.get("references") or ())
        found = document["id"] if schema_id is None else schema_id
        schema_type, text = document.get("schemaType", AVRO), document["schema"]
        subject, version = document.get("subject", ""), document.get("version", 0)
        more = document.get("guid", ""), document.get("metadata"), document.get("ruleSet")
        return cls(found, schema_type, text, references, subject, version, *more)


def _rules(rule_set: Mapping[str, Any] | None) -> list[Rule]:
    """The rules that must be run. As for Confluent's clients, one that is disabled or whose failure is NONE need not be."""
    listed = [each for kind in ("migrationRules", "domainRules", "encodingRules") for each in (rule_set or {}).get(kind) or ()]
    return [
        Rule(each.get("name", ""), each.get("type", ""), each.get("mode") or "WRITEREAD")
        for each in listed
        if not each.get("disabled") and {*(each.get("onFailure") or "").upper().split(",")} != {"NONE"}
    ]


def verdict_words(messages: Iterable[str]) -> list[str]:
    """What a registry says of a schema that does not fit, without the form of Confluent's messages and without the old schema."""
    found = []
    for message in messages:
        if conflict := _CONFLICT.fullmatch(message):
            found.append(f"{conflict['what']}: {conflict['remedy']}" if conflict["remedy"] else conflict["what"])
        elif plain := _PLAIN.fullmatch(message):
            found.append(f"compared with version {plain[2]}" if plain[1] == "oldSchemaVersion" else f"{plain[1]} is {plain[2]}")
        elif not message.startswith("{oldSchema:"):
            found.append(message)
    return found


class SchemaRegistry:
    """A connection to a registry, kept open, and what it has answered by id."""

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        self._urls = options.urls
        for url in self._urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"{url!r} is no address of a registry; write http://host:8081 or https://host:8081")
        self._connection: http.client.HTTPConnection | None = None
        self._schemas: dict[SchemaName, Registered] = {}
        self._parsed: dict[SchemaName, ParsedSchema] = {}
        self._versions: dict[tuple[str, int], Registered] = {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- schemas ---

    def schema(self, schema_id: SchemaName) -> Registered:
        """The schema of an id or a GUID."""
        if schema_id not in self._schemas:
            if isinstance(schema_id, int):
                found = Registered.of(self.request("GET", f"/schemas/ids/{schema_id}"), schema_id)
            else:
                document = self.request("GET", f"/schemas/guids/{schema_id}")
                places = self.request("GET", f"/schemas/guids/{schema_id}/ids")
                found = Registered.of(document, places[0]["id"] if places else 0)
            self._schemas[schema_id] = found
        return self._schemas[schema_id]

    def parsed(self, schema_id: SchemaName) -> ParsedSchema:
        """The parsed schema of an id or a GUID, with what it refers to."""
        if schema_id not in self._parsed:
            self._parsed[schema_id] = self.parse(self.schema(schema_id))
        return self._parsed[schema_id]

    def parse(self, schema: Registered) -> ParsedSchema:
        """A schema with what it refers to. It was accepted before: what an older registry allowed is not refused."""
        return parse(schema.schema_type, schema.text, self.resolved(schema.references), lenient=True)

    def resolved(self, references: Iterable[Reference]) -> list[ResolvedReference]:
        """Everything that is referred to, each once and before what uses it."""
        direct = list(references)
        found: dict[Reference, ResolvedReference] = {}
        for each in direct:
            self._resolve(each, found, direct)
        return list(found.values())

    def _resolve(self, reference: Reference, found: dict[Reference, ResolvedReference], direct: list[Reference]) -> None:
        if reference in found:
            return
        key = (reference.subject, reference.version)
        if key not in self._versions:
            self._versions[key] = self.version(reference.subject, reference.version, deleted=True)
        schema = self._versions[key]
        for each in schema.references:
            self._resolve(each, found, direct)
        found[reference] = ResolvedReference(
            reference.name, reference.subject, reference.version, schema.text, reference in direct
        )

    def version(self, subject: str, version: int | str = "latest", *, deleted: bool = False) -> Registered:
        """A version of a subject, by default the latest."""
        query = {"deleted": "true"} if deleted else {}
        return Registered.of(self.request("GET", f"/subjects/{_segment(subject)}/versions/{version}", query=query))

    def register(
        self, subject: str, schema_type: str, text: str, references: Iterable[Reference] = (), *, normalize: bool = False
    ) -> int:
        """Register a schema, if it is not there yet, and return its id."""
        query = {"normalize": "true"} if normalize else {}
        body = _body(schema_type, text, references)
        return int(self.request("POST", f"/subjects/{_segment(subject)}/versions", body, query)["id"])

    def lookup(self, subject: str, schema_type: str, text: str, references: Iterable[Reference] = ()) -> Registered:
        """The version of the subject that has this schema."""
        return Registered.of(self.request("POST", f"/subjects/{_segment(subject)}", _body(schema_type, text, references)))

    # --- HTTP ---

    def request(self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None) -> Any:
        """The document that answers a request. RegistryFailed says what the registry said, or that none answered."""
        target = path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        trouble: Exception | None = None
        for attempt in range(2 * len(self._urls)):
            url = self._urls[0]
            try:
                status, answer = self._exchange(url, method, target, content)
            except (OSError, http.client.HTTPException) as error:
                trouble = error
            else:
                if status < 400:
                    return answer
                failure = _failure(url, method, path, status, answer)
                if status not in _RETRIED:
                    raise failure
                trouble = failure
            self.close()
            # A kept connection may have ended meanwhile: the same address gets a second chance, then the next has its turn.
            if attempt % 2:
                self._urls.append(self._urls.pop(0))
        if isinstance(trouble, RegistryFailed):
            raise trouble
        addresses = ", ".join(_without_login(url) for url in self._urls)
        raise RegistryFailed(f"no schema registry answers at {addresses}: {trouble}") from trouble

    def _exchange(self, url: str, method: str, target: str, content: bytes | None) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = self._connect(url)
        headers = {"Accept": f"{MEDIA_TYPE}, application/json", _NEWER: "true", **self._authorization(url)}
        if content is not None:
            headers["Content-Type"] = MEDIA_TYPE
        self._connection.request(method, urlsplit(url).path.rstrip("/") + target, content, headers)
        response = self._connection.getresponse()
        data = response.read()
        try:
            return response.status, json.loads(data) if data else None
        except ValueError:
            return (response.status if response.status >= 400 else 502), data[:200].decode(errors="replace")

    def _connect(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.options.timeout_s)
        context = ssl.create_default_context(cafile=self.options.ca_file)
        if self.options.certificate_file:
            context.load_cert_chain(self.options.certificate_file, self.options.key_file)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self.options.timeout_s, context=context)

    def _authorization(self, url: str) -> dict[str, str]:
        if self.options.token:
            return {"Authorization": f"Bearer {self.options.token}"}
        parts = urlsplit(url)
        user_info = self.options.user_info
        if user_info is None and parts.username:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user_info is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(user_info.encode()).decode()}


def _without_login(url: str) -> str:
    """An address for errors, which others may read."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _segment(subject: str) -> str:
    """A subject as one segment of a path."""
    return quote(subject, safe="")


def _body(schema_type: str, text: str, references: Iterable[Reference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if schema_type != AVRO:
        body["schemaType"] = schema_type
    listed = [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]
    return body | ({"references": listed} if listed else {})


def _failure(url: str, method: str, path: str, status: int, answer: Any) -> RegistryFailed:
    document = answer if isinstance(answer, dict) else {}
    code = document.get("error_code", status)
    message = document.get("message") or answer or http.client.responses.get(status, "")
    host = urlsplit(url).netloc.rpartition("@")[2]
    return RegistryFailed(f"the schema registry {host} refused {method} {unquote(path)}: {message} (error {code})", int(code))
