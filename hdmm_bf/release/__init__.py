"""Release: the only code where data meet noise, and what is needed around it."""
