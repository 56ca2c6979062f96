"""``python -m sgpmic``: the command line."""

from sgpmic.cli.startup import main

if __name__ == "__main__":
    main()
