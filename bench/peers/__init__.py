"""The one-tool turn on what users would pick instead; `bench/bench_peers.py` says how to run it."""
