"""TLS contexts made of key stores and trust stores, for brokers and clients.

- `authority`: makes certificates.
- `config`: what a listener or a client is configured with.
- `stores`: reads PEM, JKS and PKCS12.
- `ciphers`: Java's names of cipher suites as OpenSSL's.
- `context`: `ssl.SSLContext` of a configuration.
"""
