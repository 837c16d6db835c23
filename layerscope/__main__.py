"""``python -m layerscope``."""

from layerscope.cli import main

if __name__ == "__main__":
    main()
