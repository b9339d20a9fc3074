"""What is asked for, in the words of Python and of the command line."""
