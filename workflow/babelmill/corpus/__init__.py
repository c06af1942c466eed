"""Run the stage `corpus`, which turns text files in any of the usual formats into one clean Parquet file per split.

`reading` makes record batches of files (`record_batches`), and `builtin` of the texts that come with Python. `cleaning`
cleans and filters them: by category, `repair`, control characters, normalisation, `cleaners` of the category, language
(`identification`), length, test sentences. Several processes do this. All documents go to a spool (`record_batches`),
and `choosing` says which of them stay: those that are not in the user's own validation text, no copies, no
`near_copies`, and within the `budget`. `tally` counts what happens to them, and keeps examples. A step that drops
documents is a reason of `tally.DROPPED`, and one that changes them a kind of `tally.CHANGED`. `__main__` is the stage.
"""
