from __future__ import annotations

import sys

import pytest

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.information_element import DataType, ElementId, InformationElement
from flowjoin._plugins.discovery import InstalledPlugin, choose_plugins
from flowjoin._plugins.listing import list_plugins
from flowjoin._plugins.loader import load_plugins
from flowjoin.api import PluginContractError, PluginLoadError

GOOD = """
    from contextlib import asynccontextmanager
    from dataclasses import dataclass
    from flowjoin.api import *

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config:
        path: str = ""

    @asynccontextmanager
    async def _open(config, context):
        yield object()
"""
EXPORTER = (
    GOOD
    + """
    @hookimpl
    def flowjoin_exporter_types():
        return [ExporterType("{name}", Config, _open, api_version={version})]
"""
)


def exporter(name: str, version: str = "1") -> str:
    return EXPORTER.replace("{name}", name).replace("{version}", version)


def test_a_named_plugin_is_imported_and_hands_over_its_type(install_plugin) -> None:
    install_plugin("paper", exporter("paper"))

    plugins = load_plugins(["paper"])

    assert plugins.exporter_type("paper").name == "paper"
    (loaded,) = plugins
    assert (loaded.installed.distribution, loaded.installed.version) == ("flowjoin-paper", "1.2.3")
    assert loaded.kinds == ("exporter",)


def test_a_plugin_that_is_not_named_is_not_imported(install_plugin) -> None:
    install_plugin("paper", exporter("paper"))
    install_plugin("bomb", "raise RuntimeError('imported')", module="planted_bomb")

    load_plugins(["paper"])

    assert "planted_bomb" not in sys.modules


@pytest.mark.parametrize("name", ["log", "ipfix", "clickhouse", "s3", "kubernetes", "conntrack"])
def test_a_missing_plugin_of_our_own_is_an_error_with_the_command_that_installs_it(name: str) -> None:
    with pytest.raises(PluginLoadError, match=rf"is not installed: pip install flowjoin-{name}$"):
        choose_plugins([name], [])


def test_a_missing_plugin_that_nobody_knows_is_told_what_is_there_and_no_made_up_command() -> None:
    there = [
        InstalledPlugin(name=name, distribution=f"d-{name}", version="1", target="t") for name in ("zebra", "apple")
    ]
    for installed, names in ((there, "apple, zebra"), ([], "none")):
        with pytest.raises(
            PluginLoadError, match=rf"; installed: {names} \(flowjoin plugins shows more\); if"
        ) as caught:
            choose_plugins(["other_thing"], installed)
        assert str(caught.value).endswith("its distribution is as a rule flowjoin-other-thing")
        assert "pip install" not in str(caught.value)


def test_a_mistyped_plugin_is_told_the_nearest_name_and_not_to_install_the_mistake(install_plugin) -> None:
    install_plugin("paper_roll", exporter("paper_roll"))
    with pytest.raises(PluginLoadError, match=r"is not installed; did you mean 'paper_roll'\?$"):
        load_plugins(["paper_rol"])


def test_a_mistyped_plugin_that_is_not_there_either_is_told_what_to_install() -> None:
    nobody: list[InstalledPlugin] = []
    with pytest.raises(
        PluginLoadError, match=r"did you mean 'clickhouse'\? \(then: pip install flowjoin-clickhouse\)$"
    ):
        choose_plugins(["clickhose"], nobody)
    with pytest.raises(PluginLoadError, match=r"is not installed: pip install flowjoin-clickhouse$"):
        choose_plugins(["clickhouse"], nobody)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import planted_nowhere", "ModuleNotFoundError: No module named 'planted_nowhere'"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("assert 1 == 2, 'odd machine'", "AssertionError: odd machine"),
        ("import sys; sys.exit('go away')", "SystemExit: go away"),
        ("def broken(:", "SyntaxError"),
        (None, "ModuleNotFoundError"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_an_error_with_its_cause(install_plugin, source, cause) -> None:
    install_plugin("paper", source, version="4.5")

    with pytest.raises(PluginLoadError) as caught:
        load_plugins(["paper"])

    assert str(caught.value).startswith("plugin 'paper' (distribution flowjoin-paper 4.5): cannot be imported: ")
    assert cause in str(caught.value)
    assert caught.value.__cause__ is not None


def test_an_attribute_that_does_not_exist_is_an_import_error(install_plugin) -> None:
    install_plugin("paper", exporter("paper"), module="planted_paper", entry_points={"paper": "planted_paper:absent"})

    with pytest.raises(PluginLoadError, match="AttributeError"):
        load_plugins(["paper"])


def test_an_entry_point_that_is_none_is_an_error(install_plugin) -> None:
    install_plugin("paper", "nothing = None", module="planted_none", entry_points={"paper": "planted_none:nothing"})

    with pytest.raises(PluginContractError, match="its entry point 'planted_none:nothing' is None"):
        load_plugins(["paper"])


def test_a_half_removed_distribution_does_no_harm(install_plugin) -> None:
    folder = install_plugin("torn", exporter("torn"))
    (metadata,) = folder.glob("*.dist-info/METADATA")
    metadata.unlink()
    install_plugin("paper", exporter("paper"))

    assert load_plugins(["paper"]).exporter_type("paper").name == "paper"
    with pytest.raises(PluginLoadError, match="is not installed"):
        load_plugins(["torn"])


def test_two_distributions_of_one_name_are_an_error_that_names_both(install_plugin) -> None:
    install_plugin("paper", exporter("paper"), distribution="flowjoin-paper", version="1.0")
    install_plugin("paper", exporter("paper"), distribution="acme-paper", version="2.0")

    with pytest.raises(PluginLoadError, match=r"acme-paper 2\.0 and flowjoin-paper 1\.0"):
        load_plugins(["paper"])


def test_two_copies_of_one_distribution_on_the_path_are_one(install_plugin) -> None:
    install_plugin("paper", exporter("paper"), version="1.0")
    install_plugin("paper", exporter("paper"), version="2.0")

    (loaded,) = load_plugins(["paper"])

    assert loaded.installed.version == "2.0"


def test_a_misspelt_hook_is_an_error_with_the_nearest_name(install_plugin) -> None:
    install_plugin("paper", exporter("paper").replace("def flowjoin_exporter_types", "def flowjoin_exporter_type"))

    with pytest.raises(
        PluginContractError, match=r"unknown hook 'flowjoin_exporter_type' \(did you mean 'flowjoin_exporter_types'\?\)"
    ):
        load_plugins(["paper"])


def test_a_hook_with_an_argument_that_its_specification_lacks_is_an_error(install_plugin) -> None:
    install_plugin("paper", exporter("paper").replace("exporter_types()", "exporter_types(colour)"))

    with pytest.raises(PluginContractError, match="colour"):
        load_plugins(["paper"])


def test_a_hook_function_without_its_decorator_is_an_error(install_plugin) -> None:
    install_plugin("paper", exporter("paper").replace("@hookimpl", ""))

    with pytest.raises(PluginContractError, match="flowjoin_exporter_types lacks the decorator @hookimpl"):
        load_plugins(["paper"])


def test_a_plugin_without_any_hook_is_an_error(install_plugin) -> None:
    install_plugin("paper", GOOD)

    with pytest.raises(PluginContractError, match="implements no hook"):
        load_plugins(["paper"])


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("2", "newer plugin API 2, this flowjoin has 1: upgrade flowjoin$"),
        ("0", "older plugin API 0, this flowjoin has 1: upgrade flowjoin-paper$"),
        ("'1'", "api_version '1'; a number belongs there"),
    ],
)
def test_another_api_version_is_refused_by_name(install_plugin, version, sentence) -> None:
    install_plugin("paper", exporter("paper", version))

    with pytest.raises(PluginContractError, match=sentence):
        load_plugins(["paper"])


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("return [", "return 5 #", "gave a int, not a list"),
        ("return [ExporterType(", "return [dict.fromkeys(() if 1 else (", "gave a dict where a ExporterType belongs"),
        ("return [", "raise KeyError('x') #", "its hook flowjoin_exporter_types failed: KeyError: 'x'"),
        ('", Config,', '", dict,', "no frozen dataclass"),
        ("(frozen=True, slots=True,", "(slots=True,", "no frozen dataclass"),
        (", _open,", ", 'open',", "an open that cannot be called"),
        (", api_version=1)", ", api_version=1, check=None)", "a check that cannot be called"),
    ],
)
def test_a_hook_that_gives_something_else_is_an_error(install_plugin, old, new, sentence) -> None:
    source = exporter("paper").replace(old, new)
    if "dict.fromkeys" in new:
        source = source.replace(", api_version=1)]", "))]")
    install_plugin("paper", source)

    with pytest.raises(PluginContractError, match=sentence):
        load_plugins(["paper"])


def test_a_type_handed_over_twice_is_an_error(install_plugin) -> None:
    twice = exporter("paper").replace("return [", "return 2 * [")
    install_plugin("paper", twice)

    with pytest.raises(PluginContractError, match="ExporterType 'paper' is handed over twice"):
        load_plugins(["paper"])


def test_the_configured_type_must_be_handed_over(install_plugin) -> None:
    install_plugin("paper", exporter("papier"))
    plugins = load_plugins(["paper"])

    with pytest.raises(PluginContractError, match="no exporter of that name; it brings exporter 'papier'"):
        plugins.exporter_type("paper")
    with pytest.raises(PluginContractError, match="no enricher of that name"):
        plugins.enricher_type("paper")


def test_one_module_may_stand_behind_two_entry_points(install_plugin) -> None:
    source = exporter("first").replace(
        "api_version=1)]", 'api_version=1), ExporterType("second", Config, _open, api_version=1)]'
    )
    install_plugin(
        "first", source, module="planted_both", entry_points={"first": "planted_both", "second": "planted_both"}
    )

    plugins = load_plugins(["second", "first"])

    assert plugins.exporter_type("first").name == "first"
    assert plugins.exporter_type("second").name == "second"


def test_each_load_stands_alone(install_plugin) -> None:
    install_plugin("paper", exporter("paper"))

    assert load_plugins(["paper"]) is not load_plugins(["paper"])
    assert list(load_plugins([])) == []


ELEMENTS = (
    GOOD
    + """
    @hookimpl
    def flowjoin_information_elements():
        return [InformationElement(name="colour", element_id=ElementId(7), enterprise_number=EnterpriseNumber(32473),
                                   data_type=DataType.STRING)]

    @hookimpl
    def flowjoin_enricher_types():
        return [EnricherType("paint", Config, ("colour",), ("{fills}",), _open, api_version=1)]
"""
)


def test_extra_elements_join_the_registry_and_an_enricher_may_declare_them(install_plugin) -> None:
    install_plugin("paint", ELEMENTS.replace("{fills}", "colour"))

    registry = load_plugins(["paint"]).extend_registry(ElementRegistry([]))

    assert registry.by_name("colour").enterprise_number == 32473


def test_an_element_whose_name_is_taken_is_an_error_that_names_the_plugin(install_plugin) -> None:
    install_plugin("paint", ELEMENTS.replace("{fills}", "colour"))
    taken = InformationElement(name="colour", element_id=ElementId(1), data_type=DataType.STRING)

    with pytest.raises(PluginContractError, match=r"'paint'.*cannot add its Information Elements: element colour"):
        load_plugins(["paint"]).extend_registry(ElementRegistry([taken]))


def test_an_enricher_that_declares_an_unknown_element_is_an_error(install_plugin) -> None:
    install_plugin("paint", ELEMENTS.replace("{fills}", "color"))

    with pytest.raises(PluginContractError, match=r"unknown element 'color' \(did you mean 'colour'\?\)"):
        load_plugins(["paint"]).extend_registry(ElementRegistry([]))


def test_a_listing_imports_nothing_unless_asked(install_plugin) -> None:
    install_plugin("paper", exporter("paper"), module="planted_listed")

    listing = {plugin.name: plugin for plugin in list_plugins()}["paper"]

    assert (listing.distribution, listing.version, listing.kinds) == ("flowjoin-paper", "1.2.3", None)
    assert "planted_listed" not in sys.modules


def test_a_listing_that_loads_gives_kinds_and_what_is_broken(install_plugin) -> None:
    install_plugin("paper", exporter("paper"))
    install_plugin("torn", "raise RuntimeError('torn')")
    install_plugin("twin", exporter("twin"), distribution="one-twin")
    install_plugin("twin", exporter("twin"), distribution="other-twin")

    listings = list_plugins(load=True)

    by_name = {plugin.name: plugin for plugin in listings}
    assert by_name["paper"].kinds == ("exporter",)
    assert "RuntimeError: torn" in by_name["torn"].problem
    assert [plugin.distribution for plugin in listings if plugin.name == "twin"] == ["one-twin", "other-twin"]
    assert "another distribution" in by_name["twin"].problem
