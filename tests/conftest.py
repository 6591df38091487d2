"""What holds for all tests.

Properties are tried on the same examples in every run, however busy the machine is: a run that fails, fails for everybody. Other
examples each time: `HYPOTHESIS_PROFILE=random make test`.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.kit")

_SLOW: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("same", derandomize=True, database=None, **_SLOW)
settings.register_profile("random", **_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a background job so, and the commands under test would inherit that they ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
