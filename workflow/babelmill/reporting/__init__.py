"""The report of a batch: the results of its models as one page and one table."""
