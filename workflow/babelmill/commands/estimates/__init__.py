"""What `babelmill plan` estimates."""
