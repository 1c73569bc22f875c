"""Mutation testing: `make mutants`. Small faults are put into the code; a test must notice each."""
