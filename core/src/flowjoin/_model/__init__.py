"""Values and errors that every part speaks in; imports nothing but the standard library."""
