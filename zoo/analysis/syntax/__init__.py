"""Python source as libcst's trees: modules and their names, branches on known values, what is unused, and layout.

Read in this order: `walking` (visitors), `reading` (names), `modules` (definitions and imports), `folding` (branches
and assignments), `layout` (fewer lines).
"""
