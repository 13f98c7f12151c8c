"""Speed, memory and accuracy tables: `make bench`, or `python -m experiments.benchmarks NAME ...`."""
