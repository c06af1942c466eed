"""What everything is built on: files, manifests, code versions, what all stage entries share."""
