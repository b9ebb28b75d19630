"""The write-ahead spool of delivery lanes: its format (pure), its files, and the shell that a lane talks to."""
