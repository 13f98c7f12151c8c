"""Settings for all tests: hypothesis without randomness between runs and without deadlines."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

from tests.support.mutations import honest  # noqa: E402, F401
