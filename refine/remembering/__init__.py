"""Memory between sessions: reflections on the journal, and extractions from conversations."""
