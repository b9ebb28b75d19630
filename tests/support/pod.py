"""flowjoin as a Pod: an address of its own, a file system that only its volumes can be written to, no capabilities.

Namespaces of the kernel stand for what a kubelet makes; programs are those of the machine, or of the image whose root
file system $FLOWJOIN_IMAGE names (``buildah mount`` gives one). Volumes of ConfigMaps and
tokens have the shape that a kubelet gives them: files are links into a directory that a link names, which is replaced
as a whole.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from running_flowjoin import Program

__all__ = ["Pod", "Volume", "require_pods"]

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_USER: Final = 10001
# What a program needs of /etc, and may read of it.
_ETC: Final = ("passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "localtime", "ssl", "alternatives")
_HIDDEN: Final = ("/etc", "/var/lib", "/var/log", "/run")
# Everything is mounted before the root is made read-only; then the user changes, and rights are gone for good.
_LOSE_RIGHTS: Final = (
    'setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set -all --inh-caps -all'
)
_VOLUMES: Final = """
for mounted in $(cat "$root/volumes"); do
    mkdir -p "$inside${mounted#*:}"; mount --bind "${mounted%%:*}" "$inside${mounted#*:}"
done
mount --bind "$root/tmp" "$inside/tmp"
"""
_ENTER: Final = f"""
set -e
root="$1"; user="$2"; inside=""; shift 3
for folder in {" ".join(_HIDDEN)}; do mount --bind "$root$folder" "$folder"; done
{_VOLUMES}
mount -o remount,bind,ro /etc; mount -o remount,bind,ro /run; mount -o remount,bind,ro /
exec {_LOSE_RIGHTS} "$@"
"""
_ENTER_IMAGE: Final = f"""
set -e
root="$1"; user="$2"; inside="$3"; shift 3
mount --bind "$inside" "$inside"
{_VOLUMES}
mount -t proc proc "$inside/proc"; mount --rbind /dev "$inside/dev"
mount -o remount,bind,ro "$inside"
exec chroot "$inside" {_LOSE_RIGHTS} "$@"
"""


def require_pods() -> str:
    """The program ip; skips where no namespaces can be made."""
    found = shutil.which("ip", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if found is None or os.geteuid() != 0:
        pytest.skip("needs root and ip to make a network and a file system of its own")
    for tool in ("unshare", "nsenter", "setpriv", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    tried = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    program = Path(sys.executable).absolute()
    if (
        _image() is None and not all(parent.stat().st_mode & 0o001 for parent in program.parents)
    ) or program.is_relative_to("/tmp"):
        pytest.skip(f"user {_USER} of a Pod could not reach {program}")
    return found


def _image() -> Path | None:
    named = os.environ.get("FLOWJOIN_IMAGE")
    return Path(named) if named else None


class Volume:
    """A ConfigMap's or Secret's, as the kubelet writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)

    def write(self, files: Mapping[str, str]) -> None:
        """Put new contents in the old ones' place, all at once."""
        self.folder.mkdir(mode=0o755, exist_ok=True)
        link = self.folder / "..data"
        old = link.resolve() if link.is_symlink() else None
        new = self.folder / f"..2026_11_30_12_00_00.{next(self._numbers)}"
        new.mkdir(mode=0o755)
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        prepared = self.folder / "..data_tmp"
        prepared.symlink_to(new.name)
        prepared.replace(link)
        if old is not None:
            shutil.rmtree(old)


class Pod:
    """Its network and its volumes; programs run in it.

    Attributes:
        address: of the Pod.
        host: of the machine, as the Pod sees it.
        config: the volume of its ConfigMap.
        account: the volume of its service account.
        logs: the volume at /var/log/flowjoin.
    """

    def __init__(self, ip: str, folder: Path) -> None:
        self._ip = ip
        number = os.getpid() % 250 + 1
        self._name = f"fjp{os.getpid()}"
        self.host, self.address = f"10.79.{number}.1", f"10.79.{number}.2"
        self._root = folder / "pod"
        for hidden in (*_HIDDEN, "/tmp"):
            (self._root / hidden[1:]).mkdir(parents=True)
        (self._root / "tmp").chmod(0o1777)
        for name in _ETC:
            self._copy_etc(name)
        self.config = Volume(folder / "config")
        self.account = Volume(folder / "account")
        self.logs, self.state = folder / "logs", folder / "state"
        for volume in (self.logs, self.state):
            volume.mkdir()
            os.chown(volume, _USER, _USER)
        self._volumes: list[tuple[Path, str]] = [
            (self.config.folder, "/etc/flow-aggregator"),
            (self.account.folder, _ACCOUNT.replace("/var/run", "/run")),
            (self.logs, "/var/log/flowjoin"),
            (self.state, "/var/lib/flowjoin"),
        ]

    def _copy_etc(self, name: str) -> None:
        source, copy = Path("/etc", name), self._root / "etc" / name
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("private"))
        elif source.exists():
            shutil.copy(source, copy)

    @contextmanager
    def network(self) -> Iterator[None]:
        """The Pod's network, joined to the machine's."""
        outer, inner = f"fjh{os.getpid()}", f"fji{os.getpid()}"
        self._run("netns", "add", self._name)
        try:
            self._run("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self._name)
            self._run("addr", "add", f"{self.host}/30", "dev", outer)
            self._run("link", "set", outer, "up")
            self._run("-n", self._name, "addr", "add", f"{self.address}/30", "dev", inner)
            self._run("-n", self._name, "link", "set", inner, "up")
            self._run("-n", self._name, "link", "set", "lo", "up")
            yield
        finally:
            # By itself it would go some time after the namespace, and be in the way of the next one.
            subprocess.run([self._ip, "link", "del", outer], capture_output=True, check=False)
            self._run("netns", "del", self._name)

    def start(self, template: Mapping[str, Any], api_server: tuple[str, int]) -> Program:
        """Run the container of a Pod's template."""
        (container,) = template["spec"]["containers"]
        fields = {"metadata.name": "flow-aggregator-0", "metadata.namespace": "flow-aggregator"}
        environment = {
            "PATH": os.environ["PATH"],
            "KUBERNETES_SERVICE_HOST": api_server[0],
            "KUBERNETES_SERVICE_PORT": str(api_server[1]),
        }
        for each in container["env"]:
            field = each["valueFrom"].get("fieldRef")
            if field is not None:  # the others are of Secrets that need not be there
                environment[each["name"]] = fields[field["fieldPath"]]
        text = " ".join(f"{source}:{target}" for source, target in self._volumes)
        (self._root / "volumes").write_text(text, encoding="utf-8")
        image = _image()
        if image is not None:
            environment["PATH"] = "/opt/flowjoin/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        script = _ENTER if image is None else _ENTER_IMAGE
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
        command = [*self._inside(), *enter, str(self._root), str(_USER), str(image or "")]
        return Program.of([*command, *_program(), *container["args"]], environment)

    def execute(self, program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run flowjoin beside what runs in the Pod, as ``kubectl exec`` does."""
        command = ["nsenter", "--target", str(program.process.pid), "--mount", "--net", "--root"]
        user = ["setpriv", "--reuid", str(_USER), "--regid", str(_USER), "--clear-groups"]
        return subprocess.run(
            [*command, *user, *_program(), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def command(self, *command: str) -> Sequence[str]:
        """A command in the Pod's network alone."""
        return [*self._inside(), *command]

    def _inside(self) -> list[str]:
        return [self._ip, "netns", "exec", self._name]

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._ip, *arguments], check=True, capture_output=True, text=True)


def _program() -> list[str]:
    """flowjoin, as the image's entry point has it."""
    return [sys.executable, "-m", "flowjoin"] if _image() is None else ["/opt/flowjoin/bin/flowjoin"]
