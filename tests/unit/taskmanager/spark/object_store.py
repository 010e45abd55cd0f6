"""A folder of this machine with the manners of an object store, as pyarrow shows it for S3."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from lockgate_common.storage import Location

SCHEME = "store://"


class ObjectStore(pafs.FileSystemHandler):
    """Moving is copying and deleting, and what is not there to be copied is an OSError that says nothing else.

    trouble: raised by the next move, which then has done nothing.
    """

    def __init__(self) -> None:
        self._files = pafs.LocalFileSystem()
        self.trouble: OSError | None = None

    def locate(self, path: str) -> Location:
        """In the place of lockgate_common.storage.locate."""
        plain = path.removeprefix(SCHEME)
        return Location(f"{SCHEME}{plain}", pafs.PyFileSystem(self), plain)

    def move(self, src: str, dest: str) -> None:
        """See pyarrow.fs.FileSystem, as all of these."""
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        if not os.path.exists(src):
            raise OSError(f"When copying key '{src}': AWS Error NO_SUCH_KEY during CopyObject operation")
        shutil.copyfile(src, dest)
        os.unlink(src)

    def copy_file(self, src: str, dest: str) -> None:
        self._files.copy_file(src, dest)

    def get_type_name(self) -> str:
        return "store"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._files.get_file_info(paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> Any:
        return self._files.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._files.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._files.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._files.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._files.delete_file(path)

    def open_input_stream(self, path: str) -> Any:
        return self._files.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self._files.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:  # noqa: ARG002
        Path(path).parent.mkdir(parents=True, exist_ok=True)  # a store has no folders
        return self._files.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError
