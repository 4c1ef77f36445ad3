"""What a record is made of: frame, Avro body, headers, coordinate; and how large it may be."""
