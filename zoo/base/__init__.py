"""Errors, files, folders and manifests. Imports nothing of the zoo; torch and transformers never."""
