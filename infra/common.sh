# shellcheck shell=bash
# What the scripts share. They set here, the directory that this file is in.
# shellcheck disable=SC2154

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"
  exit 0
}

need() {
  command -v "$1" >/dev/null 2>&1 || fail "$1 is missing. $2"
}

step() {
  printf '\n== %s\n' "$1" >&2
  shift
  "$@"
}

# find_example sets example to the directory that the argument names, and fails (without a message) if the argument is none, but an option.
find_example() {
  local named=1
  case ${1-} in
    '' | -*) example=$here/examples/minimal named=0 ;;
    minimal | production) example=$here/examples/$1 ;;
    *) example=$1 ;;
  esac
  [ -f "$example/main.tf" ] || fail "no main.tf in $example: minimal, production or a directory with one is valid"
  example=$(cd "$example" && pwd)
  [ "$named" = 1 ]
}

# build_steps makes the temporary directory work, and builds steps, which needs the clone's own module.
build_steps() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  steps=$work/steps
  (cd "$here/.." && go build -o "$steps" ./infra/steps) || fail "infra/steps was not built, for the reason above"
  cd "$here" || exit
}

tf() {
  terraform -chdir="$example" "$@"
}

output() {
  tf output -raw "$1"
}

# confirm asks, unless --yes was given.
confirm() {
  [ -z "${yes:-}" ] || return 0
  [ -t 0 ] || fail "nobody to ask: $1 (--yes answers yes)"
  local answer
  read -r -p "$1 [y/N] " answer
  [ "$answer" = y ] || [ "$answer" = yes ] || fail "nothing was changed"
}
