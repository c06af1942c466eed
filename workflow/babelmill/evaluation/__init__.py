"""What is measured of an exported model, and how."""
