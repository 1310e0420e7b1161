"""Run the command line as ``python -m percolab``."""

from percolab.cli.main import main

if __name__ == "__main__":
    main()
