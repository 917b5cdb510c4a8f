"""The commands, each with its options in a module that `app` imports when the command is used."""
