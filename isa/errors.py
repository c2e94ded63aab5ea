"""The exceptions of tilewright, all below one parent."""


class TilewrightError(Exception):
    """Parent of every error that tilewright raises on purpose.

    Parameters
    ----------
    message
        One sentence without a full stop that names the thing at fault and where it is.
    hint
        What the user can do about it, one sentence; shown on a line of its own by the CLI.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(TilewrightError):
    """A configuration cannot be built, or is not the one that a program was made for."""


class ProgramError(TilewrightError):
    """A program, or a file that should hold one, is malformed or breaks a rule of the machine."""


class DeadlockError(ProgramError):
    """No engine can make progress; the message says what each of them waits for."""


class ModelError(TilewrightError):
    """A model file is damaged, or holds something that tilewright does not support."""


class CompileError(TilewrightError):
    """A graph cannot be compiled for the configuration at hand."""


class InputError(TilewrightError):
    """Input data, or an argument of a call, does not fit the model or the device."""
