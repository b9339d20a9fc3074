"""The classes of transformers that are converted, one file a family: each registers its own when it is imported."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
