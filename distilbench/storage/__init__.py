"""Object storage behind machines without a shared disk: artifacts, runs, reports."""
