"""`python -m lanewise`: the command line without the installed script."""

import sys

from lanewise.cli.app import main

sys.exit(main())
