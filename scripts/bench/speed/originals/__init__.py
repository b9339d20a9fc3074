"""The five documents' own arithmetic, written as plainly as they write it, under their parameters' names.

Sizes are the width, the heads, the inner width and the depth of a stack.
"""
