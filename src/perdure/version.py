"""The version, where everything may read it without loading anything else."""

VERSION = "0.1.0"
