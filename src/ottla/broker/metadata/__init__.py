"""What this broker knows of the cluster, and the metadata store.

`local_metadata` is what the other parts read: identity, image and settings. A broker alone gets its image from the controller in
this process; in a cluster `metadata_cache` builds it from UpdateMetadata requests. `open_store` opens the store, `identity`
agrees on broker id and cluster id, `tree` reads an image from it.
`dynamic_configs`, `client_configs` and `acl_follower` follow changes of settings, quotas and ACLs (`change_notifications`).
"""
