"""A pretrained model by the name a user gives: a local folder, or the hub's owner/name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.errors import InputError
from distilbench.storage.files import file_sha256
from distilbench.storage.hub import hub_silence, tell_cached

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True)
class Pretrained:
    """Where a model is, and `role`, with which messages begin ("augmentation contextual")."""

    name: str
    role: str

    @property
    def source(self) -> str:
        """What `from_pretrained` takes: the folder's absolute path, or the hub id."""
        folder = self.folder()
        return str(folder) if folder else self.name

    def folder(self) -> Path | None:
        """The local folder, or None when the name is left to the hub.

        Raises:
            InputError: no such folder and no hub id, or no model in the folder.
        """
        path = Path(self.name).expanduser()
        if self.name and path.is_dir():
            if not (path / "config.json").exists():
                raise InputError(f"{self.role}: no config.json in {self.name!r}; expected a Hugging Face model folder")
            if not any((path / name).exists() for name in _WEIGHTS):
                raise InputError(f"{self.role}: no weights in {self.name!r}; expected one of {', '.join(_WEIGHTS)}")
            return path.resolve()
        if path.is_absolute() or self.name.startswith((".", "~")) or self.name.count("/") != 1:
            raise InputError(
                f"{self.role}: no folder {self.name!r}; expected a Hugging Face model folder or a hub id (owner/name)"
            )
        return None

    def absolute(self) -> Pretrained:
        """The same model for a process in another working folder."""
        path = Path(self.name).expanduser()
        return Pretrained(str(path.absolute()), self.role) if path.is_dir() else self

    def identity(self) -> dict[str, str]:
        """For a folder the checksums of its files, README and hidden files apart; else hub id and commit.

        Raises:
            InputError: there is no such model, or the hub cannot be reached and its cache does not have it.
        """
        folder = self.folder()
        if folder is None:
            return {"hub": self.name, "commit": self._config().parent.name}
        files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
        content = (path for path in files if path.name != "README.md" and not path.parts[0].startswith("."))
        return {str(path): file_sha256(folder / path) for path in content}

    def config(self) -> dict[str, Any]:
        """The model's `config.json`.

        Raises:
            InputError: as `identity`, or it is malformed.
        """
        path = self._config()
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self.role}: {path}: not a JSON object ({error})") from None

    def _config(self) -> Path:
        """The path of `config.json`; in the hub's cache its folder is named after the commit."""
        folder = self.folder()
        if folder is not None:
            return folder / "config.json"
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        silence = hub_silence()
        try:
            config = Path(snapshot_download(self.name, allow_patterns=["config.json"])) / "config.json"
            tell_cached(f"{self.role}, {self.name},")
            return config
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            why = f"it cannot be reached, {silence}" if silence else type(error).__name__
            raise InputError(
                f"{self.role}: no folder {self.name!r}, and not to be had from the hub ({why}); "
                "expected a Hugging Face model folder or a hub id (owner/name)"
            ) from None
