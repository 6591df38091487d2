"""A registry: its state, the log behind it, and who leads. Reads are answered from the state, writes go through the log.

Invariants
1. Only the leader writes, one write at a time, each decided by a state that has applied everything before it.
2. Leadership is confirmed before each write; a leader that lost it meanwhile is fenced by the log (`log_writer`).
3. A write is answered when the own reader has applied it. If its outcome is unknown, that is an error, and found out before the
   next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.brokers import Brokers
from ottla.registry import changes, errors, metadata, subjects
from ottla.registry.changes import Change
from ottla.registry.election import Assignment, Identity
from ottla.registry.log_format import NOOP, Document, LogKey, LogRecord, SchemaVersion, key_bytes
from ottla.registry.log_reader import LogReader
from ottla.registry.log_writer import Fenced, LogWriter, TooLarge, WriteFailed
from ottla.registry.membership import REBALANCE_TIMEOUT_MS, Membership
from ottla.registry.partition import Partition
from ottla.registry.references import resolve, text_of
from ottla.registry.state import State, digest_of
from ottla.registry.workers import Workers
from ottla.runtime.loop import end
from ottla.schemas.compatibility import LENIENT, Conflict, compared
from ottla.schemas.model import AVRO, Reference
from ottla.schemas.work import Described, SchemaText

T = TypeVar("T")

WRITE_TIMEOUT_S: Final = 30.0
JOIN_TIMEOUT_S: Final = REBALANCE_TIMEOUT_MS / 1000 + 10
LEADER_TIMEOUT_S: Final = 15.0
"""How long a write waits for a leader: longer than a rebalance of the group."""
_IDLE_MAX_S: Final = 3600.0
"""A writer that was idle so long begins anew: brokers forget producers."""
_CANONICAL_MAX: Final = 100_000
_DESCRIBED_MAX: Final = 2_000
_CACHED_TEXT_MAX: Final = 16 << 10

logger = logging.getLogger("ottla.registry")


class NotLeading(Exception):
    """This registry does not lead, and nothing was written."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema as a client sends it. An id below 0 and a version below 1 are for the registry to choose."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Document | None = None
    rule_set: Document | None = None
    id: int = -1
    version: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a schema may follow the versions of a subject."""

    level: str
    conflicts: tuple[tuple[SchemaVersion | None, Conflict], ...]
    """With the earlier version; None if the schema is refused by itself."""


class Assembled(NamedTuple):
    """A registry, and what it is started with and leaves behind."""

    registry: Registry
    membership: Membership
    partitions: list[Partition]


def assembled(
    connect: Callable[[float], Brokers],
    workers: Workers,
    now_ms: Callable[[], int],
    *,
    topic: str,
    group_id: str,
    identity: Identity,
    cluster_id: str,
) -> Assembled:
    """A registry of all its parts. `connect` makes a client whose requests take at most so many seconds."""
    reading, writing, joining = (Partition(connect(timeout_s), topic) for timeout_s in (30.0, 30.0, JOIN_TIMEOUT_S))
    state = State()
    reader, writer = LogReader(reading, state), LogWriter(writing, f"{topic}-registry", now_ms)
    registry = Registry(state, reader, writer, workers, cluster_id=cluster_id, group_id=group_id)
    return Assembled(registry, Membership(joining, group_id, identity, registry.on_assigned), [reading, writing, joining])


class Registry:
    def __init__(
        self, state: State, reader: LogReader, writer: LogWriter, workers: Workers, *, cluster_id: str, group_id: str
    ) -> None:
        self.state = state
        self.cluster_id = cluster_id
        self.group_id = group_id
        self._reader = reader
        self._writer = writer
        self._workers = workers
        self._membership: Membership | None = None
        self._assignment: Assignment | None = None
        self._assigned = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._last_write_s = 0.0
        self._canonical: OrderedDict[tuple[bytes, str], bytes | None] = OrderedDict()
        """By the GUID and type of a schema in the log: its GUID with our canonical text; None if it does not parse."""
        self._described: OrderedDict[tuple[SchemaText, bool], Described] = OrderedDict()
        self._inlined_texts: OrderedDict[SchemaText, str] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, membership: Membership, read_timeout_s: float) -> None:
        """Read the log to its end, then join the others. TimeoutError."""
        self._tasks.append(asyncio.create_task(self._reader.run()))
        await self._reader.reach(await self._reader.end(), read_timeout_s)
        self._membership = membership
        self._tasks.append(asyncio.create_task(membership.run()))

    async def close(self) -> None:
        async with self._writing:
            if self._membership is not None:
                await self._membership.leave()
        for task in self._tasks:
            await end(task)
        await self._workers.close()

    # Who leads

    def on_assigned(self, assignment: Assignment | None) -> None:
        self._assignment = assignment
        if assignment is None or not self.leads:
            self._writer.stop()
        if assignment is not None:
            logger.info(
                "The leader is %s%s", assignment.leader and assignment.leader.url, ", this registry" if self.leads else ""
            )
        asyncio.get_running_loop().create_task(self._tell_assigned())

    async def _tell_assigned(self) -> None:
        async with self._assigned:
            self._assigned.notify_all()

    @property
    def leads(self) -> bool:
        leader = self._assignment.leader if self._assignment is not None else None
        # By the URL: the member id of a static member that was restarted is another one.
        return leader is not None and self._membership is not None and leader.url == self._membership.url

    @property
    def has_leader(self) -> bool:
        return self._assignment is not None and self._assignment.leader is not None

    async def leader(self) -> Identity | None:
        """Who takes writes: None if it is this registry. Waits for an election. RegistryError if there is no leader."""
        try:
            async with asyncio.timeout(LEADER_TIMEOUT_S), self._assigned:
                await self._assigned.wait_for(lambda: self.has_leader)
        except TimeoutError:
            raise errors.no_leader(
                "No registry leads; is the Kafka cluster reachable, and may this user join the group?"
            ) from None
        assert self._assignment is not None
        return None if self.leads else self._assignment.leader

    # Schemas

    async def find(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> SchemaVersion | None:
        """The version of the subject that is this schema."""
        if not request.text.strip():
            return None
        try:
            return await self._find(subject, request, normalize, deleted, lenient=False)
        except errors.RegistryError:
            # What this registry refuses another one may have let in.
            found = await self._find(subject, request, normalize, deleted, lenient=True)
            if found is None:
                raise
            return found

    async def _find(
        self, subject: str, request: SchemaRequest, normalize: bool, deleted: bool, *, lenient: bool
    ) -> SchemaVersion | None:
        schema = await self._canonical_schema(subject, request, normalize, lenient=lenient)
        found = await self._registered(_tidy(schema), deleted=deleted)
        latest = self.state.latest(subject)
        if found is not None or latest is None:
            return found
        completed = metadata.completed(self.state.config_in_scope(subject), schema, latest, None)
        return None if completed == _tidy(schema) else await self._registered(completed, deleted=deleted)

    def gives_metadata(self, subject: str) -> bool:
        """Whether the config adds to the metadata and rules of new versions."""
        return any(self.state.config_in_scope(subject).get(name) for name in metadata.INHERITED)

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> SchemaVersion:
        """Register a schema. NotLeading: nothing was written."""
        changes.check_may_register(self.state, subject, with_id=request.id >= 0)
        while True:
            async with self._writing:
                await self._prepare_write()
            schema = await self._canonical_schema(subject, self._completed(subject, request), normalize)
            basis = self._basis(schema)
            if not changes.imports(self.state, subject):
                config, latest = self.state.config_in_scope(subject), self.state.latest(subject)
                completed = metadata.completed(config, schema, latest, self.state.next_version(subject))
                wanted = [completed] if self.gives_metadata(subject) else [_tidy(schema), completed]
                for each in wanted:
                    known = await self._registered(each, deleted=False)
                    if known is not None and schema.version in (0, -1, known.version):
                        return known
                schema = completed
                verdict = await self.verdict(schema, self.state.versions(subject))
                if verdict.conflicts:
                    raise errors.incompatible(subject, conflict_text(verdict))
            async with self._writing:
                await self._prepare_write()
                if self._basis(schema) == basis:
                    changes.check_may_register(self.state, subject, with_id=request.id >= 0)
                    new = await self._write(changes.register(self.state, _tidy(schema)))
                    self._remember_canonical(new, digest_of(new))
                    return new
            # Somebody changed the subject meanwhile: compare with what it has now.

    async def compare(
        self, subject: str, request: SchemaRequest, earlier: Sequence[SchemaVersion], *, normalize: bool
    ) -> Verdict:
        """Whether a schema may follow these versions, by the level of the subject."""
        if not request.text.strip():
            raise errors.invalid_schema("Empty schema")
        return await self.verdict(await self._canonical_schema(subject, request, normalize), earlier)

    async def verdict(self, schema: SchemaVersion, earlier: Sequence[SchemaVersion]) -> Verdict:
        level, config = self.state.level(schema.subject), self.state.config_in_scope(schema.subject)
        reserved: list[tuple[SchemaVersion | None, Conflict]] = []
        if config.get("validateFields") is True:
            fields = (await self._describe(text_of(self.state, schema), normalize=False)).fields
            latest = earlier[-1] if earlier else None
            reserved = [(None, each) for each in metadata.reserved_conflicts(schema, fields, latest)]
        parsing = await self._parsing([each for each in earlier if metadata.in_group(config, schema, each)])
        if not compared(level, len(parsing)):
            return Verdict(level, tuple(reserved))
        texts = [text_of(self.state, each) for each in parsing]
        lenient = config.get("compatibilityPolicy") == LENIENT
        found: list[Conflict] = await self._workers.run("check", level, text_of(self.state, schema), texts, lenient)
        return Verdict(level, (*reserved, *((parsing[each.position], each) for each in found)))

    async def formatted(self, version: SchemaVersion, form: str) -> str:
        """The text of a version in the format of a request."""
        if not form.strip():
            return version.text
        text: str = await self._workers.run("formatted", text_of(self.state, version), form)
        return text

    def _completed(self, subject: str, request: SchemaRequest) -> SchemaRequest:
        """A request without a schema means that of the latest version."""
        if request.text.strip():
            return request
        latest = self.state.latest(subject)
        if latest is None:
            raise errors.invalid_schema("Empty schema")
        return replace(request, schema_type=latest.schema_type, text=latest.text, references=latest.references)

    async def _canonical_schema(
        self, subject: str, request: SchemaRequest, normalize: bool, *, lenient: bool = False
    ) -> SchemaVersion:
        """The schema of a request. `lenient` does not check names and defaults."""
        normalize = normalize or self.state.config_in_scope(subject).get("normalize") is True
        text = SchemaText(request.schema_type, request.text, resolve(self.state, subject, request.references), lenient)
        described = await self._describe(text, normalize=normalize)
        if self.state.config_in_scope(subject).get("validateFields") is True and not changes.imports(self.state, subject):
            trouble = metadata.trouble_of_fields(described.schema_type, described.fields)
            if trouble is not None:
                raise errors.invalid_schema(f"Invalid schema: {trouble}")
        return SchemaVersion(
            subject,
            request.version,
            request.id,
            described.schema_type,
            described.canonical,
            tuple(self._numbered(subject, request.references)),
            metadata=request.metadata,
            rule_set=request.rule_set,
        )

    async def _describe(self, text: SchemaText, *, normalize: bool) -> Described:
        described = self._described.get((text, normalize))
        if described is None:
            described = await self._workers.run("describe", text, normalize)
            assert described is not None
            if len(text.text) <= _CACHED_TEXT_MAX:
                _remember(self._described, (text, normalize), described, _DESCRIBED_MAX)
        return described

    async def _registered(self, schema: SchemaVersion, *, deleted: bool) -> SchemaVersion | None:
        """The version of the subject that is this schema, also if another registry stored it with other blanks."""
        found = changes.registered(self.state, schema, deleted=deleted)
        if found is not None:
            return found
        versions = self.state.versions(schema.subject, deleted=deleted)
        alike = [each for each in versions if each.schema_type == schema.schema_type]
        guid = digest_of(schema)
        for each in reversed(await self._parsing(alike)):
            if self._canonical.get(_content_key(each)) == guid:
                return each
            if metadata.is_same(schema, each) and await self._means_the_same(schema, each):
                return each
        return None

    async def _means_the_same(self, schema: SchemaVersion, known: SchemaVersion) -> bool:
        """Whether two schemas differ in the form of their references at most: version -1 is the latest, and the Avro schemas that
        a client's serializer sends have what they refer to in their text."""
        if self._targets(schema) == self._targets(known):
            return schema.text == known.text
        return not schema.references and schema.schema_type == AVRO and schema.text == await self._inlined(known)

    def _targets(self, schema: SchemaVersion) -> list[Reference]:
        """The references, each with the full name and the number of what it means."""
        targets = [(each, self.state.target(schema.subject, each)) for each in schema.references]
        return [each if found is None else Reference(each.name, found.subject, found.version) for each, found in targets]

    def _numbered(self, subject: str, references: Sequence[Reference]) -> list[Reference]:
        """The references of a schema, the latest version by its number."""
        latest = [(each, self.state.target(subject, each) if each.version == -1 else None) for each in references]
        return [each if found is None else replace(each, version=found.version) for each, found in latest]

    async def _inlined(self, known: SchemaVersion) -> str:
        """The text of an Avro schema with what it refers to."""
        schema = text_of(self.state, known)
        text = self._inlined_texts.get(schema)
        if text is None:
            text = await self._workers.run("formatted", schema, "resolved")
            assert text is not None
            _remember(self._inlined_texts, schema, text, _DESCRIBED_MAX)
        return text

    async def _parsing(self, versions: Sequence[SchemaVersion]) -> list[SchemaVersion]:
        """The schemas that parse. The others came from another registry; they are logged once."""
        unknown = [each for each in versions if _content_key(each) not in self._canonical]
        if unknown:
            texts = [_text_or_nothing(self.state, each) for each in unknown]
            described: list[Described | None] = await self._workers.run("describe_all", texts)
            for version, found in zip(unknown, described, strict=True):
                if found is None:
                    logger.warning(
                        "Subject %s version %d (id %d) does not parse: it is left out of compatibility checks",
                        version.subject,
                        version.version,
                        version.id,
                    )
                    self._remember_canonical(version, None)
                else:
                    self._remember_canonical(version, digest_of(replace(version, text=found.canonical)))
        return [each for each in versions if self._canonical.get(_content_key(each)) is not None]

    def _remember_canonical(self, version: SchemaVersion, guid: bytes | None) -> None:
        _remember(self._canonical, _content_key(version), guid, _CANONICAL_MAX)

    def _basis(self, schema: SchemaVersion) -> object:
        """What a verdict depends on. Another one needs another verdict."""
        state, subject = self.state, schema.subject
        versions = [(each.version, each.id) for each in state.versions(subject)]
        config, next_version = state.config_in_scope(subject), state.next_version(subject)
        return versions, next_version, config, state.mode_in_scope(subject), resolve(state, subject, schema.references)

    # Other writes. NotLeading: nothing was written.

    async def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        return await self._decide(lambda: changes.delete_version(self.state, subject, number, permanent=permanent))

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        return await self._decide(lambda: changes.delete_subject(self.state, subject, permanent=permanent))

    async def delete_context(self, context: str) -> None:
        return await self._decide(lambda: changes.delete_context(self.state, context))

    async def set_config(self, subject: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
        return await self._decide(lambda: changes.set_config(self.state, subject, fields))

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        return await self._decide(lambda: changes.delete_config(self.state, subject))

    async def set_mode(self, subject: str | None, mode: str, *, force: bool) -> str:
        return await self._decide(lambda: changes.set_mode(self.state, subject, mode, force=force))

    async def delete_mode(self, subject: str | None, *, recursive: bool) -> str | None:
        return await self._decide(lambda: changes.delete_mode(self.state, subject, recursive=recursive))

    async def _decide(self, decide: Callable[[], Change[T]]) -> T:
        async with self._writing:
            await self._prepare_write()
            return await self._write(decide())

    # The log

    async def _prepare_write(self) -> None:
        """Make sure that this registry leads, and that its state has everything in the log."""
        if not self.leads or self._membership is None or not await self._membership.confirm():
            self._writer.stop()
            raise NotLeading
        if not self._writer.has_begun or asyncio.get_running_loop().time() - self._last_write_s > _IDLE_MAX_S:
            try:
                await self._writer.begin(WRITE_TIMEOUT_S)
            except WriteFailed as error:
                raise errors.store_failed(str(error)) from None
            # With this record in the log no other writer can append: what is before it is all there is.
            await self._append([(key_bytes(LogKey(NOOP)), None)])

    async def _write(self, change: Change[T]) -> T:
        if change.records:
            await self._append(change.records)
        return change.answer

    async def _append(self, records: Sequence[LogRecord]) -> None:
        if not self._writer.has_begun:
            raise NotLeading  # since `begin` the group has chosen another leader
        try:
            end = await self._writer.append(records, WRITE_TIMEOUT_S)
            await self._reader.reach(end, WRITE_TIMEOUT_S)
        except Fenced:
            raise errors.store_failed("Another registry leads now; try again") from None
        except TooLarge as error:
            raise errors.too_large(f"The topic does not take so large a schema: {error}") from None
        except WriteFailed as error:
            raise errors.timed_out(f"The write may have happened or not; try again: {error}") from None
        except TimeoutError:
            self._writer.stop()
            raise errors.timed_out("The write is in the log, but was not read back in time; try again") from None
        self._last_write_s = asyncio.get_running_loop().time()


def _tidy(schema: SchemaVersion) -> SchemaVersion:
    """Without metadata and rules that are empty: given so, they are not taken over from the version before."""
    return replace(schema, metadata=schema.metadata or None, rule_set=schema.rule_set or None)


def conflict_text(verdict: Verdict) -> str:
    return f"[{', '.join(conflict_messages(verdict))}]"


def conflict_messages(verdict: Verdict) -> list[str]:
    """One message for each conflict, then the version and the level, in the form that clients print."""
    messages = []
    for _, conflict in verdict.conflicts:
        found = conflict.incompatibility
        at = f" at {found.path}" if found.path else ""
        messages.append(f"{{errorType:'{found.rule}', description:'{found.message}{at}', additionalInfo:'{found.remedy}'}}")
    earlier = next((version for version, _ in verdict.conflicts if version is not None), None)
    if earlier is not None:
        messages.append(f"{{oldSchemaVersion: {earlier.version}}}")
        messages.append(f"{{oldSchema: '{earlier.text}'}}")
    if verdict.conflicts:
        messages.append(f"{{compatibility: '{verdict.level}'}}")
    return messages


def _content_key(version: SchemaVersion) -> tuple[bytes, str]:
    return digest_of(version), subjects.context_of(version.subject) + version.schema_type


def _text_or_nothing(state: State, version: SchemaVersion) -> SchemaText:
    """A version for a worker. Without what it references if that is missing: then it does not parse."""
    try:
        return text_of(state, version)
    except errors.RegistryError:
        return SchemaText(version.schema_type, version.text, lenient=True)


K = TypeVar("K")
V = TypeVar("V")


def _remember(cache: OrderedDict[K, V], key: K, value: V, entries_max: int) -> None:
    cache[key] = value
    if len(cache) > entries_max:
        cache.popitem(last=False)
