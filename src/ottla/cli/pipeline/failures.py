"""Errors of pipelines as failures of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.cli.failure import Failure

_RUN_AGAIN = "no data is lost: run the pipeline again"


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of a pipeline, of its broker and of Spark's Java process into a Failure."""
    from ottla.client.blocking import BrokerAway
    from ottla.errors import KafkaError
    from ottla.pipelines import PipelineError
    from ottla.pipelines.spark_jvm import has_ended

    try:
        yield
    except PipelineError as error:
        # Notes hold later errors, such as a query that does not stop.
        said = [*([error.hint] if error.hint else []), *getattr(error, "__notes__", ())]
        raise Failure(str(error), "; ".join(said) or None) from error
    except (BrokerAway, KafkaError) as error:
        raise Failure(str(error), _RUN_AGAIN) from error
    except Exception as error:
        # Python meets different errors then, depending on its next call into Java.
        if has_ended(error):
            raise Failure("Spark's Java process ended (killed, or out of memory?)", _RUN_AGAIN) from error
        raise
