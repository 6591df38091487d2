"""`python -m ottla.sim`"""

from __future__ import annotations

import sys

from ottla.sim.run import main

sys.exit(main())
