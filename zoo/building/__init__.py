"""From a name, a folder or a repository to a model. Imports `base`, `fast`, `models` and `variants`."""
