"""The mechanic's exception at work: ``asking`` the agent, ``reading`` what it granted."""
