"""The command line, as ``python -m elldict``."""

from elldict.cli import main

if __name__ == "__main__":
    main()
