"""What mixes tokens in layers without attention, a file each."""
