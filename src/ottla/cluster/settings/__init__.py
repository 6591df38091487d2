"""THE table of settings, and the values a broker and its topics take from it.

`broker_table`, `unused_table`, `topic_table` are the data; `setting` says what a row is; `broker` reads a `server.properties`
(all problems at once, nearest names, synonyms in Kafka's order); `topic` lays a topic's own values over the broker's; `listeners`
reads the addresses; `environment` reads `OTTLA_*`; `describe` is what DescribeConfigs shows; `page` writes docs/settings.md.
The same rows drive all of it, so validation, the wire and the documentation cannot disagree.
"""

from ottla.cluster.settings.broker import BROKER_SETTINGS, BrokerSettings
from ottla.cluster.settings.describe import ConfigSource, DescribedSetting, Synonym, describe_broker, describe_topic
from ottla.cluster.settings.environment import settings_from_environment
from ottla.cluster.settings.listeners import Listeners
from ottla.cluster.settings.problems import SettingsError
from ottla.cluster.settings.setting import Setting, SettingType, Value
from ottla.cluster.settings.topic import TOPIC_SETTINGS, TopicSettings, topic_config_problems

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerSettings",
    "ConfigSource",
    "DescribedSetting",
    "Listeners",
    "Setting",
    "SettingType",
    "SettingsError",
    "Synonym",
    "TopicSettings",
    "Value",
    "describe_broker",
    "describe_topic",
    "settings_from_environment",
    "topic_config_problems",
]
