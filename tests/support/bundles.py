"""Bundles changed behind their back, with right checksums."""

import hashlib
import json


def repair(path, manifest):
    """Write the manifest with right checksums, as somebody who wants to cheat would."""
    if isinstance(manifest.get("files"), dict):
        for name in manifest["files"]:
            if (path / name).is_file():
                manifest["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def forge(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    change(path, manifest)
    repair(path, manifest)
