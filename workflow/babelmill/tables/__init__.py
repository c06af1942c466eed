"""The one reader: `text` opens the files that users bring, `rows` reads corpora, suites, tasks and tables to predict."""
