#!/usr/bin/env bash
# Format, validity, and Terraform's own tests of the modules. Nothing is sent to AWS. The provider comes from the registry, or, where VARVE_TERRAFORM_PLUGINS names a
# directory as `terraform providers mirror` makes it, from there without any network. Arguments go to terraform test: -filter=functions.tftest.hcl.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
. "$here/common.sh"

need terraform "Terraform 1.7 or newer: https://developer.hashicorp.com/terraform/install"
cd "$here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Nothing of the machine's: neither credentials, which might be real, nor a configuration.
for name in $(compgen -v AWS_); do unset "$name"; done
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
init=(-input=false -backend=false)
if [ -n "${VARVE_TERRAFORM_PLUGINS:-}" ]; then
  export TF_CLI_CONFIG_FILE=/dev/null
  init+=("-plugin-dir=$VARVE_TERRAFORM_PLUGINS")
fi

# Packages only have to be there: nothing is uploaded.
export TF_VAR_packages=$work TF_VAR_package=$work/produce.zip
for policy in modules/functions/policies/*.json; do
  echo placeholder >"$work/$(basename "$policy" .json).zip"
done

valid() {
  local example
  for example in examples/*/; do
    terraform -chdir="$example" init "${init[@]}" >"$work/init" || {
      cat "$work/init" >&2
      fail "terraform init of $example failed, for the reason above; without a network VARVE_TERRAFORM_PLUGINS names a directory with hashicorp/aws 5.100 or newer"
    }
    terraform -chdir="$example" validate
  done
}
tests() {
  terraform -chdir=tests init "${init[@]}" >/dev/null
  terraform -chdir=tests test "$@"
}
step 'terraform fmt' terraform fmt -check -recursive -diff
step 'terraform validate' valid
step 'terraform test' tests "$@"
