"""Record the first minute of the README as a picture: docs/first-minute.svg.

    python -m tools.draw_minute

Runs `ottla up` and the README's first commands in a temporary directory, and draws what they print.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "first-minute.svg"
COMMANDS = (
    "ottla topic create greetings --partitions 3",
    "echo 'lars:good morning' | ottla produce greetings -K :",
    "ottla consume greetings -e -K :",
    "ottla sql 'select key, count(*) from greetings group by key'",
    "ottla cluster health",
)
WIDTH = 84
# rich's own template loads fonts from the network; this one takes what the reader has.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: "Fira Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def show(console: Console, command: str, output: str) -> None:
    """Print a command and its output as a terminal shows them."""
    console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
    if output.strip():
        console.print(Text(output.rstrip()), soft_wrap=True)


def main() -> None:
    """Run the commands against a new node and write the picture."""
    # The console's own output is not wanted, only the recording.
    with open(os.devnull, "w") as nowhere, tempfile.TemporaryDirectory() as directory:
        console = Console(record=True, width=WIDTH, file=nowhere)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": str(WIDTH),
        }
        up = subprocess.Popen(
            ["ottla", "up"],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert up.stdout is not None
            show(console, "ottla up &", up.stdout.readline())
            for command in COMMANDS:
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=directory,
                    env=environment,
                    check=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                show(console, command, done.stdout)
        finally:
            up.terminate()
            up.communicate()
    svg = console.export_svg(
        title="ottla", theme=MONOKAI, code_format=SVG, unique_id="first-minute"
    )
    PICTURE.write_text(svg)


if __name__ == "__main__":
    main()
