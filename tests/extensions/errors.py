"""All that an error would show."""

import traceback


def everything_about(error: BaseException) -> str:
    """All that a log, a report or a debugger would show of an error."""
    shown = ["".join(traceback.format_exception(error))]
    while error is not None:
        orig = getattr(error, "orig", None)
        for each in filter(None, (error, orig)):
            diagnosis = getattr(each, "diag", None)
            fields = [name for name in dir(diagnosis) if not name.startswith("__")]
            shown += [str(each), repr(each), repr(each.args), repr(vars(each))]
            shown += [str(getattr(diagnosis, name)) for name in fields]
        shown.append(repr(getattr(error, "params", None)))
        error = error.__cause__ or error.__context__
    return "\n".join(shown)
