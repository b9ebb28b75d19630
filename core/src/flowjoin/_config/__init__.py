"""One YAML file to frozen values, with exact error paths."""
