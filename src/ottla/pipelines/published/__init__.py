"""What a run of a pipeline publishes about itself, so that any console and exporter of the cluster finds it without the files.

The compacted topic `__ottla_pipelines` holds a JSON document for each pipeline (key `shop`: its plan) and for each of its flows
(key `shop/revenue`: state and progress). docs/pipelines.md has the format.

- `topic`: creates, writes and reads the topic, on any Kafka;
- `documents`: makes the documents of a run;
- `publisher`: the thread that publishes them, best effort and outside of every transaction;
- `requests`: what drivers are asked to do, in the same topic;
- `view`: what readers make of the documents.
"""
