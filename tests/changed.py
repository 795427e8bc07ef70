"""Lists the tests of what has changed: `make test-changed`."""

import argparse
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("tests/test_layout.py", "tests/test_size.py")


def changed_files(base: str) -> list[Path]:
    """Files that differ from a commit, and those that git does not know yet, from the root of the checkout."""
    names = [*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")]
    return [Path(name) for name in names]


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def tests_of(paths: Iterable[Path]) -> list[str]:
    """The files and folders of tests that mirror the given files, each once."""
    found = dict.fromkeys(ALWAYS)
    for path in paths:
        found.update(dict.fromkeys(_tests_of(path)))
    return list(found)


def _tests_of(path: Path) -> list[str]:
    top = path.parts[0]
    if top == "tests":
        return [path.as_posix()] if path.name.startswith("test_") and (ROOT / path).is_file() else []
    if top in ("docs", "README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        return ["tests/docs"]
    if top not in ("asd", "operators", "exporters"):
        return []
    if len(path.parts) == 2:
        return [found.relative_to(ROOT).as_posix() for found in (ROOT / "tests" / top).glob(f"test_{path.stem}*.py")]
    folder = Path("tests", *path.parts[:2])
    return [folder.as_posix()] if (ROOT / folder).is_dir() else []


def main() -> None:
    """Prints the tests on one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="the commit that the working tree is compared with (HEAD)")
    print(*tests_of(changed_files(parser.parse_args().base)))


if __name__ == "__main__":
    main()
