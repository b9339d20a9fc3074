"""The models of the zoo written for reading: torch alone, one class a part, under the zoo's names of parameters.

Classes branch on the settings; `zoo.eject` decides these branches for one model and writes what is left into one file.
The code is checked against the models of the zoo each time that a file is written. It has no fast path and no hook.
"""
