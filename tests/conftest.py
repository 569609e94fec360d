"""Settings that hold for every test."""

from hypothesis import HealthCheck, settings

# No deadlines: how fast a machine is must not decide a test.
settings.register_profile(
    "dray", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dray")
