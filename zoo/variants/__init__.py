"""The built-in variants, one file a family. Every module of this package registers what it defines when imported."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
