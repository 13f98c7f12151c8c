"""Run the command line as `python -m hdmm_bf`."""

from hdmm_bf.cli import main

main()
