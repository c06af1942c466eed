"""The one reader of tables (.csv, .tsv, .jsonl, .parquet), for corpora, suites and tables to predict.

What a cell may hold, how a line becomes fields, and what is refused does not depend on the use. Only what happens to a
bad row does: a corpus may skip it, a suite and a table to predict stop at the first one.

* `columns` finds the columns that are asked for, says what their cells may hold, and reads a line of JSON.
* `delimited` and `parquet_file` read the rows of the other formats.
* `table` reads whole rows of a file, for suites and tables to predict. `corpus/readers/` makes record batches of the
  columns that a corpus needs.
"""
