"""Typed values by name, shared by the settings of a broker and of a topic."""

from __future__ import annotations

import builtins

from ottla.cluster.settings.setting import Value


class SettingValues:
    """Typed getters; a value of another type is a bug, not a user's mistake."""

    __slots__ = ()

    def value(self, name: builtins.str) -> Value:
        raise NotImplementedError

    def int(self, name: builtins.str) -> builtins.int:
        value = self.value(name)
        assert isinstance(value, builtins.int), (name, value)
        assert not isinstance(value, builtins.bool), (name, value)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self.value(name)
        assert isinstance(value, builtins.float | builtins.int), (name, value)
        return builtins.float(value)

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.value(name)
        assert isinstance(value, builtins.bool), (name, value)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.value(name)
        assert isinstance(value, builtins.str), (name, value)
        return value

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple), (name, value)
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        value = self.value(name)
        assert value is None or isinstance(value, builtins.str), (name, value)
        return value
