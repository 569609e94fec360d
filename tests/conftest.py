"""Settings that hold for every test.

The examples of property tests are the same in every run, so that a run that fails does so again;
`DRAY_RANDOM=1` looks for something new.
"""

import os

from hypothesis import HealthCheck, settings

# No deadlines: how fast a machine is must not decide a test.
settings.register_profile(
    "dray",
    deadline=None,
    print_blob=True,
    derandomize="DRAY_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dray")
