"""What is climbed, and how."""
