"""What `make bench` measures: speed against floors that are measured in the same run."""
