"""`tracellm lab`: the course. work.py has the commands of a student's work, challenges.py broken engines,
teaching.py the teacher's.
"""

import click

from tracellm.cli.commands.lab.challenges import expose, museum, predict
from tracellm.cli.commands.lab.teaching import export_grader, grade, hand_out, twist
from tracellm.cli.commands.lab.work import check, explain, hint, report, reveal, show_list, start, submit
from tracellm.cli.options import Group

__all__ = ["lab"]


@click.group(cls=Group, help="cli.help.lab")
def lab() -> None:
    """Hold the commands of the course."""


for command in (show_list, start, check, hint, explain, predict, expose, submit, reveal, report, museum):
    lab.add_command(command)
for command in (grade, export_grader, twist, hand_out):
    lab.add_command(command)
