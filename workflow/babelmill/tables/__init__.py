"""The one reader: `text` opens the files that users bring, `rows` reads rows of tables and documents of text."""
