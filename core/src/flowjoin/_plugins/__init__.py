"""Discovery, validation and life of plugins; the only caller of pluggy."""
