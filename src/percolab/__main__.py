"""Let ``python -m percolab`` be the command line."""

from percolab.cli.main import main

if __name__ == "__main__":
    main()
