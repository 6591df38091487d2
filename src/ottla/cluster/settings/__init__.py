"""The table of all settings, and the values of brokers, topics and groups.

`broker_table`, `tls_table`, `sasl_table` (logins at this broker), `sasl_client_table` (its logins at others), `zookeeper_table`
(how it secures its connection to ZooKeeper) and `unused_table` are the data; `setting` is a row. `broker` parses a
`server.properties` and reports all problems at once; `topic` and `group` have their own tables and resolve their values over the
broker's; `listeners` parses addresses; `of_listener` resolves `listener.name.*`; `tls` and `sasl` are those of a listener;
`environment` reads `OTTLA_*`; `describe` answers DescribeConfigs; `page` writes docs/settings.md. All use the same rows.
"""

from ottla.cluster.settings.broker import BROKER_SETTINGS, BrokerSettings
from ottla.cluster.settings.describe import ConfigSource, DescribedSetting, Synonym, describe_broker, describe_topic
from ottla.cluster.settings.environment import settings_from_environment
from ottla.cluster.settings.listeners import Listeners
from ottla.cluster.settings.setting import Setting, SettingsError, SettingType, Value, host_and_port
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
    "host_and_port",
    "settings_from_environment",
    "topic_config_problems",
]
