"""Controllers, filters and delays: laws of quantities by name, whose outputs drive inputs."""
