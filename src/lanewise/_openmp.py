"""Imported first: lets idle OpenMP threads sleep.

torch and numba each bring an OpenMP runtime, whose idle threads spin by default and so take the cores from each other's
working threads: on two cores that others use as well, a training step took 830 ms instead of 120. The runtimes read the
variable when they are loaded, so it helps only where lanewise is imported before torch; what the user has set stays.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
