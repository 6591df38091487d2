"""The replicas on this broker.

- `partitions` holds every `partition`, which is led (`leading`, `commit_wait`) or follows (`following`). `role_changes` and
  `topic_config` are what an image and its settings mean for them. `replica_logs` finds, creates and deletes their logs.
  `fetch_read` reads for Fetch, `large_batches` decompresses in workers. `traffic` counts records and bytes by topic.
- In a cluster: `control_requests` carries out the controller's requests, `replica_fetcher` fetches from leaders, `isr_changes`
  sends ISR changes to the controller; `replication_context` is what a partition needs from them.
- On disk: `data_dirs` opens and closes the directories; `flusher`, `checkpoints`, `index_rebuilder`, `cleaner`, `replica_moves`
  and the periodic `housekeeping` work on them, in worker threads where they block (`disk_work`). The cleaner asks `logs_to_clean`
  what is next and has `compactor` run the pass.
"""
