"""Collecting Process: sockets and files to whole Messages, with their Transport Sessions."""
