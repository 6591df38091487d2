"""Log lines that tell who changed what: topics, configs, ACLs, quotas, users, tokens. The broker that answers logs them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.broker.network.context import RequestContext
from ottla.cluster.image import TopicImage
from ottla.cluster.requests import ConfigAlteration, ConfigOperation, ResourceType
from ottla.cluster.settings.broker import setting_of
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)

_VERBS = {
    ConfigOperation.SET: "{}={}",
    ConfigOperation.DELETE: "delete {}",
    ConfigOperation.APPEND: "append {}={}",
    ConfigOperation.SUBTRACT: "subtract {}={}",
}


@dataclass(frozen=True, slots=True)
class Who:
    principal: str
    host: str
    client_id: str | None

    def __str__(self) -> str:
        return f"{self.principal} from {self.host}"

    def log_fields(self) -> dict[str, object]:
        fields: dict[str, object] = {"principal": self.principal, "client": self.host}
        return {**fields, "client_id": self.client_id} if self.client_id else fields


def log_change(context: RequestContext, what: str) -> None:
    session = context.session
    logger.info("%s %s", Who(str(session.principal), session.client_host, context.client_id), what)


def log_created(context: RequestContext, outcomes: Iterable[object]) -> None:
    """Topics among the outcomes of a creation."""
    for outcome in outcomes:
        if isinstance(outcome, TopicImage):
            log_change(context, f"created topic {outcome.name} with {len(outcome.partitions)} partitions")


def log_configs(context: RequestContext, asked: Sequence[ConfigAlteration], outcomes: Sequence[KafkaError | None]) -> None:
    for alteration, error in zip(asked, outcomes, strict=True):
        if error is None:
            verb = "replaced" if alteration.replace else "altered"
            log_change(context, f"{verb} the configs of {_resource_and_configs(alteration)}")


def _resource_and_configs(alteration: ConfigAlteration) -> str:
    kind = ResourceType(alteration.resource_type).name.lower().replace("_", " ")
    name = alteration.resource_name or "(default)"
    changes = [
        _VERBS[ConfigOperation(change.operation)].format(
            change.name, change.value if _may_be_shown(alteration, change.name) else "[hidden]"
        )
        for change in alteration.changes
    ]
    return f"{kind} {name}: {', '.join(changes) or 'all are default'}"


def _may_be_shown(alteration: ConfigAlteration, name: str) -> bool:
    """Configs of brokers may be passwords."""
    if alteration.resource_type != ResourceType.BROKER:
        return True
    setting = setting_of(name)
    return setting is not None and not setting.sensitive
