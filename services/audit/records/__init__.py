"""What the audit keeps of the records that it has read, and what it expects to come of them."""
