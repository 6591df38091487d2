"""The names of confluent-kafka that the commands use. Importing it loads the client, so functions import it when they need it.

The library does not declare all its exports to type checkers: this module does.
"""

from __future__ import annotations

from confluent_kafka import Consumer as Consumer
from confluent_kafka import ConsumerGroupState as ConsumerGroupState
from confluent_kafka import ConsumerGroupTopicPartitions as ConsumerGroupTopicPartitions
from confluent_kafka import ConsumerGroupType as ConsumerGroupType
from confluent_kafka import IsolationLevel as IsolationLevel
from confluent_kafka import KafkaError as KafkaError
from confluent_kafka import KafkaException as KafkaException
from confluent_kafka import Message as Message
from confluent_kafka import Producer as Producer
from confluent_kafka import TopicCollection as TopicCollection
from confluent_kafka import TopicPartition as TopicPartition
from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin import AlterConfigOpType as AlterConfigOpType
from confluent_kafka.admin import ClusterMetadata as ClusterMetadata
from confluent_kafka.admin import ConfigEntry as ConfigEntry
from confluent_kafka.admin import ConfigResource as ConfigResource
from confluent_kafka.admin import ConfigSource as ConfigSource
from confluent_kafka.admin import ConsumerGroupDescription as ConsumerGroupDescription
from confluent_kafka.admin import NewPartitions as NewPartitions
from confluent_kafka.admin import NewTopic as NewTopic
from confluent_kafka.admin import OffsetSpec as OffsetSpec
from confluent_kafka.admin import ResourceType as ResourceType
from confluent_kafka.admin import TopicMetadata as TopicMetadata
