#!/usr/bin/env bash
# Builds the functions, plans, asks, applies, and tries what it has made. From a fresh clone, again after a change, again after a failure.
#
#   infra/deploy.sh [--yes] [--no-smoke-test] [EXAMPLE] [OPTION OF TERRAFORM PLAN]...
#
# EXAMPLE is minimal (the default), production, or a directory of your own. Its variables are in its terraform.tfvars, or come as -var NAME=VALUE.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
. "$here/common.sh"

yes='' smoke=1
while [ $# -gt 0 ]; do
  case $1 in
    --yes) yes=1 ;;
    --no-smoke-test) smoke='' ;;
    -h | --help) usage ;;
    --*) fail "unknown option $1: --yes and --no-smoke-test are valid, and options of terraform plan, which begin with one -" ;;
    *) break ;;
  esac
  shift
done
find_example "${1-}" && shift
need go "Go 1.26 or newer builds the functions: https://go.dev/dl"
need terraform "Terraform 1.7 or newer: https://developer.hashicorp.com/terraform/install"
[ -f "$example/terraform.tfvars" ] || [ $# -gt 0 ] ||
  fail "no variables: write $example/terraform.tfvars, with at least
  region = \"eu-central-1\"
  bucket = \"a name that nobody in the world has yet\""

build_steps
step 'who deploys' "$steps" whoami
step 'the functions' "$steps" package "$here/.packages"
step 'terraform init' tf init -input=false

plan_all() {
  tf plan -input=false -out="$work/plan" "$@"
  tf show -json "$work/plan" >"$work/plan.json"
  "$steps" check-plan "$work/plan.json"
}
step 'the plan' plan_all "$@"
confirm 'Apply this plan?'

# The first time bucket and table come first, and are made one log, which the functions may not do: they would fail until somebody had.
if ! tf state list 2>/dev/null | grep -q '^module\.functions\.'; then
  step 'bucket and table' tf apply -input=false -auto-approve -target=module.bucket -target=module.table "$@"
  step 'the log' "$steps" make-log "$(output log)"
  step 'the rest of the plan' plan_all "$@"
fi
step 'apply' tf apply -input=false "$work/plan"
[ -z "$smoke" ] || step 'smoke test' "$steps" smoke "$(output log)" "$(output produce_url)" "$(output fetch_url)"
printf '\ndeployed. The log is\n  %s     with rights in bucket and table\n  %s     over HTTPS, with the right to call the functions\n' "$(output log)" "$(output fetch_url)"
