"""The report of a group: the results of its models as one page and one table."""
