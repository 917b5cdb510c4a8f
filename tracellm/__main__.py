"""`python -m tracellm` is the `tracellm` command."""

from tracellm.cli import main

if __name__ == "__main__":
    main()
