#!/usr/bin/env bash
# Destroys what deploy.sh has made, but for the data: bucket and table stay, and a later deploy.sh finds them again.
#
#   infra/destroy.sh [--yes] [--delete-data BUCKET] [EXAMPLE] [OPTION OF TERRAFORM DESTROY]...
#
# --delete-data deletes bucket and table too, with every version and every backup of the last days. It names the bucket, and without --yes asks for the table's name.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
. "$here/common.sh"

yes='' delete=''
while [ $# -gt 0 ]; do
  case $1 in
    --yes) yes=1 ;;
    --delete-data)
      [ $# -gt 1 ] || fail "--delete-data wants the bucket's name"
      delete=$2
      shift
      ;;
    -h | --help) usage ;;
    --*) fail "unknown option $1: --yes and --delete-data BUCKET are valid, and options of terraform destroy, which begin with one -" ;;
    *) break ;;
  esac
  shift
done
find_example "${1-}" && shift
need go "Go 1.26 or newer: https://go.dev/dl"
need terraform "Terraform 1.7 or newer: https://developer.hashicorp.com/terraform/install"

build_steps
step 'who destroys' "$steps" whoami
step 'terraform init' tf init -input=false
state=$(tf state list) || fail "there is no state in $example: nothing was deployed from here"
if [ -n "$delete" ]; then
  log=$(output log) bucket=$(output bucket) table=$(output table)
  [ "$delete" = "$bucket" ] || fail "the bucket is $bucket, not $delete: nothing was changed"
fi

# Everything but the data and the keys that it is encrypted with.
mapfile -t targets < <(printf '%s\n' "$state" | grep -vE '^(data\.|module\.(bucket|table)[.[]|aws_kms_key\.)' | sed -E 's/^((module\.)?[a-z0-9_]+(\.[a-zA-Z0-9_-]+)?).*/\1/; s/^(module\.[a-z0-9_]+).*/\1/' | sort -u | sed 's/^/-target=/')
if [ ${#targets[@]} -gt 0 ]; then
  step 'the plan' tf plan -destroy -input=false -out="$work/plan" "${targets[@]}" "$@"
  confirm 'Destroy this? The data stays.'
  step 'destroy' tf apply -input=false "$work/plan"
fi
if [ -z "$delete" ]; then
  printf '\nbucket and table are still there, and so is what has to be paid for them. --delete-data BUCKET deletes them.\n'
  exit 0
fi

if [ -z "$yes" ]; then
  [ -t 0 ] || fail "nobody to ask for the table's name (--yes answers)"
  read -r -p "All records of $log will be gone for good. Type the name of the table to go on: " answer
  [ "$answer" = "$table" ] || fail "the table is $table: bucket and table were left as they are"
fi
step 'the data' "$steps" delete-data "$log"
# Terraform may not delete them (prevent_destroy), so it is told that they are gone.
mapfile -t gone < <(tf state list | grep -E '^module\.(bucket|table)\.' || true)
step 'forget them' tf state rm "${gone[@]}"
printf '\nall is gone, but for keys of KMS, if there were any\n'
