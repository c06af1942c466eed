"""Python programs that begin quickly: forks of a process that has imported the libraries."""
