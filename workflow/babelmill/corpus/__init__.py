"""Run the stage `corpus`, which turns text files in any of the usual formats into one clean Parquet file per split.

`readers` yields record batches of one schema (`record_batches`), `cleaning` cleans and filters documents, `digests`
names them, `duplicates` drops repeated ones, `near_duplicates` drops those that are nearly the same (`near_copies`
finds them by `shingles`), `sampling` draws a sample of the budget's size, and `writer` writes the documents. `tally`
counts what happens to them, and `examples` keeps examples. `pieces` cuts the files, and `workers` reads the pieces in
parallel. `builtin` is the corpus that needs no files. `__main__` is the stage.

Documents pass these steps in this order. In the workers, document by document: category, `repair`, control characters,
normalisation, `cleaners` of the category, `boilerplate` lines, language (`identification`), length, digest. Then in one
process: validation text, budget, duplicates, `near_duplicates`, the sample. A step that drops documents is a reason of
`tally.DROPPED`, and one that changes them a kind of `tally.CHANGED`.
"""
