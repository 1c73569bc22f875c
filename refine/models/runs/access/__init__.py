"""The mechanic's exception: time-limited permission to read one agent's memories."""
