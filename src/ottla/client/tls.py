"""The TLS context of a client, from its options."""

from __future__ import annotations

import ssl

from ottla.client.security import InvalidOption, TlsOptions
from ottla.tls import stores

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """InvalidOption for a store that cannot be read: a retry would not help."""
    name, value = f"{options.prefix}ssl.truststore.location", options.trust_file or "…"
    try:
        trusted = options.trust_pem
        if trusted is None and options.trust_file is not None:
            trusted = stores.certificates(options.trust_file, options.trust_password)
        # Without a trust store: the certificates that the machine trusts.
        context = ssl.create_default_context(cadata=trusted)
        context.check_hostname = options.check_host and options.check_certificate
        if not options.check_certificate:
            context.verify_mode = ssl.CERT_NONE
        if options.versions:
            context.minimum_version = min(_VERSIONS[name] for name in options.versions)
            context.maximum_version = max(_VERSIONS[name] for name in options.versions)
        name, value = f"{options.prefix}ssl.keystore.location", options.key_file or "…"
        if options.key_pem is not None:
            stores.load_chain(context, options.key_pem, options.key_password)
        elif options.key_file is not None:
            pem, password = stores.key_and_chain(options.key_file, options.key_file_password, options.key_password)
            if options.chain_file is not None:
                pem += stores.certificates(options.chain_file, None)
            stores.load_chain(context, pem, password)
    except stores.BadStore as error:
        raise InvalidOption(name, value, str(error)) from None
    except ssl.SSLError as error:
        raise InvalidOption(name, value, f"OpenSSL does not take it: {error.reason or error}") from None
    return context
