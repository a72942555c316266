from . import stats as stats  # imported when it is first asked for
