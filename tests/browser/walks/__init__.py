"""Twelve walks through the dashboard, from the first hour to a bad day."""
