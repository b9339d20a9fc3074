"""The models of the zoo written for reading: plain PyTorch, one class per part, with the zoo's parameter names.

Classes branch on the settings; `zoo.eject` evaluates them for one model and writes the rest to one file.
Every written file is checked against the zoo's model. There are no fast paths and no hooks.
"""
