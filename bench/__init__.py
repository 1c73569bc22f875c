"""The benchmarks of `make bench`: speed against floors measured in the same run."""
