"""The mechanic's exception at work: the agent is asked, and what it grants becomes readable.

``asking`` puts the question; ``reading`` is the one place through which content becomes readable
by a human; ``differences`` shows how an edit changed a text.
"""
