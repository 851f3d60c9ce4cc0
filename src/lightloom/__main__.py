"""``python -m lightloom``."""

from lightloom.cli.main import main

if __name__ == "__main__":
    main()
