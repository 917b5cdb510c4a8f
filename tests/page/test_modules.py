"""The page's script as modules: types, unit tests in Node, and the linker that makes one script of them."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.node import require_node
from tracellm.report.html.linker import LinkError, link

HERE = Path(__file__).parent
MODULES = Path(__file__).parents[2] / "tracellm" / "report" / "html" / "js"
TSC = HERE / "node_modules" / ".bin" / "tsc"


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_units():
    """The unit tests of the modules pass in Node."""
    _run(require_node(), "--test", *(str(path) for path in sorted(HERE.glob("*.test.mjs"))))


def test_types():
    """The types in the modules' comments hold."""
    if not TSC.exists():
        pytest.skip("TypeScript is not installed: run `npm ci --prefix tests/page`")
    _run(str(TSC), "-p", ".")


def _link(**sources: str) -> str:
    return link("main.js", lambda name: sources[name.removesuffix(".js")])


def test_modules_come_after_those_they_need():
    """Each module stands once, after those that it imports, without import and export."""
    sources = {
        "main.js": 'import { a } from "./views/one.js";\nimport { b } from "./base/two.js";\na(b);\n',
        "views/one.js": 'import { b } from "../base/two.js";\nexport function a() {\n  return b;\n}\n',
        "base/two.js": "export const b = 2;\n",
    }
    script = link("main.js", sources.__getitem__)
    assert re.findall(r"^// (.*)", script, re.MULTILINE) == ["base/two.js", "views/one.js", "main.js"]
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"main": 'import { a } from "./one.js";\n', "one": "const a = 1;\n"}, "one.js does not export"),
        (
            {"main": 'import { a } from "./one.js";\nconst b = 1;\n', "one": "export const a = 1;\nlet b;\n"},
            "b is decl",
        ),
        ({"main": 'import { a } from "./one.js";\n', "one": 'import { b } from "./main.js";\n'}, "in a circle"),
        ({"main": 'import a from "./one.js";\n'}, "unsupported form"),
        ({"main": "export default 1;\n"}, "unsupported form"),
    ],
)
def test_modules_that_do_not_fit_are_refused(sources: dict[str, str], message: str):
    """A missing export, a clash of names, a circle, and other forms of import and export are errors."""
    with pytest.raises(LinkError, match=message):
        _link(**sources)


def test_comments_on_their_own_lines_are_left_out():
    """Comments are left out where they have lines of their own; types within an expression, and texts, stay."""
    source = (
        '/** A module.\n *\n * @param {string} a */\n// note\nconst a = "// not a comment";\n'
        "  /** @type {X} */ (b).c();\nfoo();\n/** More. */\nbar(); // after code\n"
    )
    linked = _link(main=source)
    body = linked.split("// main.js\n")[1]
    assert body.splitlines()[:4] == [
        'const a = "// not a comment";',
        "  /** @type {X} */ (b).c();",
        "foo();",
        "bar(); // after code",
    ]


def test_every_module_is_part_of_a_page():
    """No module is left over: each is linked from the script of the report, of a comparison, or of a notebook cell."""
    linked = set()
    for entry in ("main.js", "diff/main.js", "cell/loader.js", "cell/main.js"):
        script = link(entry, lambda name: (MODULES / name).read_text(encoding="utf-8"))
        linked |= set(re.findall(r"^// (\S+\.js)$", script, re.MULTILINE))
    assert linked == {path.relative_to(MODULES).as_posix() for path in MODULES.rglob("*.js")}
