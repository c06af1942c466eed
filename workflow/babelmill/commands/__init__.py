"""The commands of `babelmill`, one module each."""
