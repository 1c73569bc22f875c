"""`make bench`, tried at a size that takes seconds: what it prints, never how fast anything is."""
