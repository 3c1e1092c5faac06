# Remove what a running service never imports from an environment: pip, packages' own tests, headers and type stubs.
set -eu
"$1/bin/python" -m pip uninstall --quiet --yes pip
find "$1" -type d \( -name tests -o -name test -o -name include \) -path '*/site-packages/*' -prune -exec rm -rf {} +
find "$1" -type f \( -name '*.pyi' -o -name '*.a' -o -name '*.lib' \) -delete
