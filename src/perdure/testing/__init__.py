"""What tests of agents need, shipped with the package: a fake provider over real HTTP, and the levers of determinism."""
