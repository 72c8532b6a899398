"""`python -m swarden` is the command `swarden`."""

from swarden.harness.cli import main

if __name__ == "__main__":
    main()
