"""What a key of a configuration is: tables of typed keys, and sentences about what is wrong with a value."""
