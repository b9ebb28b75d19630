import runpy
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "core" / "elements" / "generate.py"


def test_generated_modules_are_what_the_generator_makes():
    modules = runpy.run_path(str(GENERATOR))["modules"]()
    assert len(modules) == 2
    for path, text in modules.items():
        assert path.read_text(encoding="utf-8") == text, f"run python {GENERATOR}"
