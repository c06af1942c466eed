"""The report of a batch: what the models' results say, as one page and one table."""
