"""What must hold of the contract files before anything uses them."""
