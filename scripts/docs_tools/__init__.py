"""What keeps the documentation true: commands are run, output is compared, links are followed, tables come from the code.

    scripts/docs-output README.md            runs the page's commands and says where the page is not what they print
    scripts/docs-output --write README.md    … and puts what they print into the page

A page speaks to these tools in HTML comments, which a reader does not see. Each stands above a fenced block:

    <!-- docs: file trial.toml -->           the block is written to that file before the next command runs
    <!-- docs: measured -->                  numbers and bars stand for any number, and lines may come in another order
    <!-- docs: exit 1 -->                    the last command of the block ends with this status
    <!-- docs: instead COMMAND -->           what is shown cannot run everywhere; this runs in its place, output not compared

and two that stand anywhere:

    <!-- docs: after tour.md -->             the page goes on in the folder that another page left behind
    <!-- docs: insert commands -->           generated from the code when the site is built (`insert.py`)
"""
