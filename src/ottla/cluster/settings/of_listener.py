"""The settings of one listener: `listener.name.<listener>.<setting>` before `<setting>`.

Of a SASL mechanism on it: `listener.name.<listener>.<mechanism>.<setting>` before both. Listener and mechanism are written in
lower case. `OF_LISTENERS` and the prefixes below say which settings a listener may have of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cluster.settings.setting import SettingValues, Value

if TYPE_CHECKING:
    from ottla.cluster.settings.broker import BrokerSettings

PREFIX: Final = "listener.name."
OF_LISTENERS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Limits of a single listener; not a default of all listeners: without a prefix they are limits of the broker."""
_SECURITY: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "principal.builder.class")
_OF_MECHANISMS: Final = ("sasl.", "connections.max.reauth.ms")


class ListenerSettingName(NamedTuple):
    listener: str
    """In lower case."""
    mechanism: str | None
    """In lower case."""
    base: str
    """The setting without prefix."""


def parse_name(name: str) -> ListenerSettingName | None:
    """The parts of `listener.name.<listener>.[<mechanism>.]<setting>`; None if a listener cannot have this setting."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    if rest in OF_LISTENERS or rest.startswith(_SECURITY):
        return ListenerSettingName(listener, None, rest)
    mechanism, _, base = rest.partition(".")
    return ListenerSettingName(listener, mechanism, base) if base.startswith(_OF_MECHANISMS) else None


@dataclass(frozen=True, slots=True)
class ListenerSettings(SettingValues):
    settings: BrokerSettings
    listener: str
    """In upper case."""
    security_protocol: str
    _prefixes: tuple[str, ...]

    def value(self, name: str) -> Value:
        value = self.own(name)
        return self.settings.value(name) if value is None else value

    def own(self, name: str) -> Value:
        """The value that is set with the prefix of the listener or mechanism; None if there is none."""
        for prefix in self._prefixes:
            value = self.settings.given(prefix + name)
            if value is not None:
                return value
        return None

    def mechanism(self, mechanism: str) -> ListenerSettings:
        """With the settings of a SASL mechanism on this listener, such as SCRAM-SHA-256."""
        listener = self._prefixes[-1]
        return ListenerSettings(
            self.settings, self.listener, self.security_protocol, (f"{listener}{mechanism.lower()}.", listener)
        )


def listener_settings(settings: BrokerSettings, listener: str, security_protocol: str) -> ListenerSettings:
    return ListenerSettings(settings, listener, security_protocol, (f"{PREFIX}{listener.lower()}.",))
