"""WSGI entry: ``gunicorn app:app``."""

from refine import create_app

app = create_app()
