#!/usr/bin/env bash
# Deploys minimal, with queues, on a moto server, which has AWS's API in memory; sees that a second plan changes nothing; runs every function's own code under its
# role, as that server enforces it; and destroys everything. About six minutes. Nothing leaves the machine but for Terraform's provider (see test.sh).
#
# VARVE_MOTO_PYTHON is a python3 that has moto[server].
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
. "$here/common.sh"

python=${VARVE_MOTO_PYTHON:-python3}
if ! "$python" -c 'import moto.server' 2>/dev/null && [ -x "$here/../.tools/moto/bin/python3" ]; then
  python=$here/../.tools/moto/bin/python3
fi
"$python" -c 'import moto.server' 2>/dev/null || fail "$python has no moto.server: make judges, or python3 -m pip install 'moto[server]==5.2.*', or VARVE_MOTO_PYTHON"
need go "Go 1.26 or newer: https://go.dev/dl"
need terraform "Terraform 1.7 or newer: https://developer.hashicorp.com/terraform/install"

place=$(mktemp -d)
cleanup() {
  [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
  rm -rf "$place"
}
trap cleanup EXIT

# Nothing of the machine's own AWS.
for name in $(compgen -v AWS_); do unset "$name"; done
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
if [ -n "${VARVE_TERRAFORM_PLUGINS:-}" ]; then
  export TF_CLI_CONFIG_FILE=$place/terraformrc
  printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s"\n  }\n}\n' "$VARVE_TERRAFORM_PLUGINS" >"$TF_CLI_CONFIG_FILE"
fi

mkfifo "$place/port"
"$python" "$here/testdeploy/server.py" >"$place/port" 2>"$place/moto.log" &
server=$!
read -r port <"$place/port" || {
  cat "$place/moto.log" >&2
  fail "the moto server did not start"
}
export AWS_ENDPOINT_URL=http://127.0.0.1:$port

# A copy, since the tests' own files lie beside the example's.
mkdir -p "$place/examples"
cp -R "$here/modules" "$place/modules"
cp -R "$here/examples/minimal" "$place/examples/minimal"
rm -rf "$place"/examples/minimal/{.terraform*,terraform.tfvars,*.tfstate*}
cp "$here"/testdeploy/*.tf "$place/examples/minimal"
example=$place/examples/minimal
printf 'region = "eu-central-1"\nbucket = "varve-test-deploy"\npackages = "%s"\n' "$here/.packages" >"$example/terraform.tfvars"

unchanged() {
  local result=0
  tf plan -input=false -detailed-exitcode >"$place/plan" || result=$?
  [ "$result" = 0 ] || {
    cat "$place/plan" >&2
    fail "a second plan is not empty"
  }
}
roles() {
  VARVE_TESTDEPLOY=$(tf output -json) go test -count=1 -timeout 5m -run 'TestDeployed' -v "$here"
}
"$here/deploy.sh" --yes --no-smoke-test "$example"
step 'a second plan' unchanged
step 'every function under its role' roles
step 'a plan after retain has set its rules' unchanged
"$here/destroy.sh" --yes --delete-data varve-test-deploy "$example"
[ -z "$(tf state list)" ] || fail "something is left: $(tf state list)"
printf '\ndeployed, planned again, run under every role, destroyed\n'
