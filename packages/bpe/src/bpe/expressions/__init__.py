"""Regular expressions of split patterns: each read in the language of its file, run by one automaton or by `regex`."""
