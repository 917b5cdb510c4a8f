"""The commands, a module for each: its options, and what it does. `app` imports one when it is asked for."""
