"""CTranslate2: a model for its inference engine, through that engine's own model specification."""
