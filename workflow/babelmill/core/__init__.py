"""The base of all other packages: files, manifests, code versions, and what all stage entries share."""
