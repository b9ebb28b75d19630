from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from flowjoin._pipeline import state_directory
from flowjoin._pipeline.state_directory import find_directory, open_state, write_durably
from flowjoin.api import ConfigError


def test_ids_are_made_once_and_the_epoch_is_raised_at_every_start(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with open_state(directory) as first:
        pass
    with open_state(directory) as second:
        pass

    assert (first.instance_id, first.cluster_uuid) == (second.instance_id, second.cluster_uuid)
    assert (first.epoch, second.epoch) == (1, 2)
    uuid.UUID(first.cluster_uuid)
    assert not [path.name for path in directory.iterdir() if path.name.startswith(".")]


def test_the_epoch_is_on_the_disk_before_anything_gets_an_id(tmp_path: Path) -> None:
    with open_state(tmp_path) as state:
        assert (tmp_path / "epoch").read_text().split()[0] == str(state.epoch)


def test_a_second_process_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    in_use = pytest.raises(ConfigError, match=f"in use by process {os.getpid()}")
    with open_state(tmp_path), in_use, open_state(tmp_path):
        pass
    with open_state(tmp_path) as state:
        assert state.epoch == 2


@pytest.mark.parametrize(
    ("name", "what"), [("epoch", "a number"), ("instance-id", "a UUID"), ("cluster-uuid", "a UUID")]
)
@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"-5", b"soon"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, what: str, content: bytes) -> None:
    with open_state(tmp_path):
        pass
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ConfigError, match=f"{name} does not hold {what}"), open_state(tmp_path):
        pass


def test_an_epoch_of_which_anything_changed_is_found_or_a_larger_one(tmp_path: Path) -> None:
    for _ in range(23):
        with open_state(tmp_path):
            pass
    whole = (tmp_path / "epoch").read_bytes()
    changed = [whole[:at] for at in range(len(whole))]
    changed += [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    for octets in changed:
        (tmp_path / "epoch").write_bytes(octets)
        try:
            with open_state(tmp_path) as state:
                assert state.epoch > 23, octets
        except ConfigError:
            pass  # it is found


def test_an_epoch_that_a_person_wrote_counts(tmp_path: Path) -> None:
    with open_state(tmp_path):
        pass
    (tmp_path / "epoch").write_text("41\n")
    with open_state(tmp_path) as state:
        assert state.epoch == 42


def test_an_instance_whose_epoch_is_lost_is_another_one(tmp_path: Path) -> None:
    """Else its ids would name other rows, and destinations that know them would pass over these."""
    with open_state(tmp_path) as first:
        pass
    (tmp_path / "epoch").unlink()
    with open_state(tmp_path) as second:
        assert second.epoch == 1
        assert second.instance_id != first.instance_id
        assert second.cluster_uuid == first.cluster_uuid


def test_an_epoch_that_somebody_removes_while_it_is_in_use_does_not_begin_anew(tmp_path: Path) -> None:
    with open_state(tmp_path):
        pass
    with open_state(tmp_path) as state:
        (tmp_path / "epoch").unlink()
        later = state.next_epoch()
        assert (later.epoch, later.last_epoch()) == (3, 3)


def test_a_place_that_cannot_be_used_is_the_operators_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"stateDirectory: .*cannot be used"), open_state(tmp_path / "file" / "state"):
        pass


def test_without_a_directory_every_start_is_another_instance() -> None:
    with open_state(None) as one, open_state(None) as two:
        assert one.instance_id != two.instance_id
        assert one.directory_of("exporters", "log") is None


def test_each_plugin_instance_has_a_directory_of_its_own(tmp_path: Path) -> None:
    with open_state(tmp_path) as state:
        own = state.directory_of("exporters", "audit")
        assert own == tmp_path / "exporters" / "audit"
        assert own.is_dir()
        assert state.directory_of("enrichers", "audit") != own


def test_a_plugins_directory_that_cannot_be_made_is_the_operators_error(tmp_path: Path) -> None:
    with open_state(tmp_path) as state:
        (tmp_path / "exporters").write_text("a file stands where the directory should")
        with pytest.raises(ConfigError, match="cannot be used"):
            state.directory_of("exporters", "audit")


def test_an_epoch_that_cannot_be_written_is_an_error_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_state(tmp_path):
        pass

    def full(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(state_directory.os, "fsync", full)
        with pytest.raises(ConfigError, match="Input/output error"), open_state(tmp_path):
            pass

    assert (tmp_path / "epoch").read_text().startswith("1 ")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_processes_left_that_were_killed_while_they_wrote_does_not_heap_up(tmp_path: Path) -> None:
    write_durably(tmp_path / "templates", b"one")
    assert (tmp_path / "templates").stat().st_mode & 0o777 == 0o600
    for _ in range(3):
        (tmp_path / ".templates-new").write_bytes(b"half of what was to be wri")  # and there the process ended
        write_durably(tmp_path / "templates", b"two")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"templates": b"two"}


@pytest.mark.parametrize("before", [2, 99])
def test_on_a_full_disk_the_one_who_would_empty_it_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    with open_state(tmp_path):
        pass
    (tmp_path / "epoch").write_text(f"{before}\n")
    place = (tmp_path / "epoch").stat().st_ino

    def full(_path: Path, _octets: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state_directory, "write_durably", full)
    with open_state(tmp_path) as state:
        assert state.epoch == before + 1
    assert (tmp_path / "epoch").read_text().startswith(f"{before + 1} ")
    assert (tmp_path / "epoch").stat().st_ino == place


def test_on_a_full_disk_nobody_starts_for_the_first_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_state(tmp_path):
        pass
    (tmp_path / "epoch").unlink()

    def full(_path: Path, _octets: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state_directory, "write_durably", full)
    with pytest.raises(ConfigError, match="cannot be used: No space left on device"), open_state(tmp_path):
        pass


def test_the_search_order_is_configured_then_systemds_then_the_usual_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "var"
    monkeypatch.setattr(state_directory, "_USUAL_PLACE", usual)
    home = {"XDG_STATE_HOME": str(tmp_path / "home")}

    assert find_directory(Path("/configured"), {"STATE_DIRECTORY": "/systemd"}) == Path("/configured")
    assert find_directory(None, {"STATE_DIRECTORY": "/systemd:/other", **home}) == Path("/systemd")
    assert find_directory(None, home) == usual
    blocked = tmp_path / "blocked"
    blocked.write_text("a file stands where the directory should")
    monkeypatch.setattr(state_directory, "_USUAL_PLACE", blocked)
    assert find_directory(None, home) == tmp_path / "home" / "flowjoin"
    assert find_directory(None, {}) is None


def test_a_directory_whose_name_the_system_cannot_write_is_unusable() -> None:
    with pytest.raises(ConfigError, match=r"stateDirectory: .*cannot be used: "), open_state(Path("/tmp/\ud800")):
        pass


def test_the_next_epoch_of_a_run_is_on_the_disk_before_anything_has_it(tmp_path: Path) -> None:
    with open_state(tmp_path) as state:
        later = state.next_epoch()
        assert (state.epoch, later.epoch) == (1, 2)
        assert (tmp_path / "epoch").read_text().startswith("2 ")
        assert later.instance_id == state.instance_id
    with open_state(tmp_path) as state:
        assert state.epoch == 3


def test_without_a_directory_the_next_epoch_differs_too() -> None:
    with open_state(None) as state:
        assert state.next_epoch().epoch == state.epoch + 1
