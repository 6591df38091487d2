"""Security decisions without I/O: who a client is, and what it may do.

- `acl`: resources, operations, entries and filters of ACLs.
- `acl_index`: decisions by ACLs.
- `acl_nodes`: ACLs as Kafka writes them in the metadata tree.
- `authorizer`: super users, and the decisions that sessions keep.
- `certificate`, `ssl_principal`: principals of client certificates.
- `delegation_token`: the rules of delegation tokens.
- `jaas`: Java's login configuration.
- `kerberos_name`: Kerberos principals, and the rules that make users of them.
- `principal`: principals, and the session of an authenticated connection.
- `quotas`: which quota applies to a client, its rate, and the throttle time.
- `jwt`: JSON Web Tokens and the keys that sign them.
- `sasl`: what SASL server mechanisms have in common; `sasl_plain`, `sasl_scram` and `sasl_oauthbearer` are mechanisms.
- `scram_credential`: what is kept of a password for SCRAM.
"""
