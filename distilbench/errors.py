"""The one error that a user's input can cause."""


class InputError(Exception):
    """Bad input: the message names the file, the row, the value and what was expected.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """
