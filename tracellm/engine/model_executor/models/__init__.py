"""The supported models, one file each, and the registry that finds a model's class by the name in config.json."""
