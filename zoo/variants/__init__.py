"""The built-in variants: data, one file a family, and in `builders` the code of those that settings do not describe.

Every module of this package registers what it declares when imported, and imports no torch.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    if not _module.ispkg:
        importlib.import_module(_module.name)
