"""What holds for all tests.

Properties are tried on the same examples in every run, however busy the machine is: a run that fails, fails for everybody. Other
examples each time: `HYPOTHESIS_PROFILE=random make test`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.kit")

_SLOW: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("same", derandomize=True, database=None, **_SLOW)
settings.register_profile("random", **_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
