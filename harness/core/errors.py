"""What a user can get wrong."""


class UsageError(Exception):
    """A command or a file that cannot be used: one line that says where, what was found and what is wanted.

    The command line prints it and exits with 2.
    """
