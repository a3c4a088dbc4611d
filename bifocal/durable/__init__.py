"""Durable changes of files and folders: after a kill or on a full disk, the old contents or the new
ones are there.

New contents are written aside, flushed to the disk and renamed. Where several files or folders
change together, a journal lists the renames: the next process completes the change of a killed one,
or discards it.
"""

from bifocal.durable.changes import Change, change, complete, new_folder, reading, write_once
from bifocal.durable.files import append_line, clear, file_digest, link, replace_file, write_text
from bifocal.durable.inside import (
    check_own,
    is_inside,
    is_own_tree,
    open_inside,
    open_once,
    path_inside,
)
from bifocal.durable.json_values import json_digest, json_text, plain, write_json
from bifocal.durable.locks import hold, locked, release

__all__ = [
    "Change",
    "append_line",
    "change",
    "check_own",
    "clear",
    "complete",
    "file_digest",
    "hold",
    "is_inside",
    "is_own_tree",
    "json_digest",
    "json_text",
    "link",
    "locked",
    "new_folder",
    "open_inside",
    "open_once",
    "path_inside",
    "plain",
    "reading",
    "release",
    "replace_file",
    "write_json",
    "write_once",
    "write_text",
]
