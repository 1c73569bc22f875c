"""Moving memories in and out, in Refine's own and other formats; messages never quote a row."""
